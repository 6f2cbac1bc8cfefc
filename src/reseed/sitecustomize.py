"""What a box with --reseed has Python load (PYTHONPATH=/run/den/python).

The generators of `random` and `numpy.random` are in the program's memory, and memory that is restored or forked would
give the same numbers twice. So before they give one, it is looked whether the process was brought back since, and
they are seeded from the kernel first. A program that has seeded one itself wants those numbers: they stay.

Nothing here may fail a program: where something is not as it is known to be, Python goes on as it would without.
"""
import os
import sys

_HERE = "/run/den/python"
_GENERATION = "/run/den/generation"
_DROPPABLE = 0x08  # MAP_DROPPABLE


def _checker(reseed):
    """A function that calls reseed() if the process was brought back since it was last called."""
    try:
        import mmap

        # a page that the kernel may drop is in no image: after a restore it is empty
        page = mmap.mmap(-1, mmap.PAGESIZE, flags=_DROPPABLE | mmap.MAP_ANONYMOUS)
        page[0] = 1

        def check():
            if not page[0]:
                reseed()
                page[0] = 1

        return check
    except Exception:
        pass  # Linux before 6.11, or gVisor: each restore makes a new file

    def generation():
        try:
            st = os.stat(_GENERATION)
            return st.st_ino, st.st_ctime_ns
        except OSError:
            return None

    seen = [generation()]

    def check_file():
        now = generation()
        if now != seen[0]:
            reseed()
            seen[0] = now

    return check_file


def _watch_random(module):
    """The functions of `random` are methods of one hidden object: it gets a class that looks first."""
    inst = module._inst
    base = type(inst)
    own = [False]  # the program chose the seed

    def reseed():
        if not own[0]:
            base.seed(inst)

    check = _checker(reseed)

    class Random(base):
        def random(self):
            check()
            return base.random(self)

        def getrandbits(self, k):
            check()
            return base.getrandbits(self, k)

        def gauss(self, *args, **kwargs):
            check()  # it may have a number left from before
            return base.gauss(self, *args, **kwargs)

        def getstate(self):
            check()
            return base.getstate(self)

        def seed(self, a=None, *args, **kwargs):
            own[0] = a is not None
            return base.seed(self, a, *args, **kwargs)

        def setstate(self, state):
            own[0] = True
            return base.setstate(self, state)

        def __reduce__(self):
            return base, (), self.getstate()

    def forked():
        own[0] = False  # Python seeds it anew by itself

    Random.__module__, Random.__qualname__ = base.__module__, base.__qualname__
    inst.__class__ = Random
    for name in ("random", "getrandbits", "gauss", "getstate", "seed", "setstate"):
        setattr(module, name, getattr(inst, name))
    os.register_at_fork(after_in_child=forked)


def _watch_numpy(module):
    """The functions of `numpy.random` are methods of one hidden object that cannot be changed: each is wrapped."""
    rand = module.mtrand._rand
    own = [False]
    plain_seed = module.seed

    def reseed():
        if not own[0]:
            plain_seed()

    check = _checker(reseed)

    def wrap(name, f):
        def call(*args, **kwargs):
            if name == "seed":
                own[0] = bool(args and args[0] is not None) or kwargs.get("seed") is not None
            elif name == "set_state":
                own[0] = True
            else:
                check()
            return f(*args, **kwargs)

        call.__name__, call.__doc__, call.__wrapped__ = name, f.__doc__, f
        return call

    for name in list(vars(module)):
        f = getattr(module, name)
        if getattr(f, "__self__", None) is rand or name in ("seed", "sample", "ranf"):
            setattr(module, name, wrap(name, f))


class _Finder(object):
    """Lets others find what is watched, and has a word with it when it was loaded."""

    watched = {"random": _watch_random, "numpy.random": _watch_numpy}

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in cls.watched:
            return None
        watch = cls.watched.pop(name)
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if finder is not cls and find else None
            if spec is not None:
                _after(spec.loader, watch)
                return spec
        return None


def _after(loader, watch):
    if not hasattr(loader, "exec_module") or isinstance(loader, type):
        return
    plain = loader.exec_module

    def exec_module(module):
        del loader.exec_module
        plain(module)
        try:
            watch(module)
        except Exception:
            pass

    loader.exec_module = exec_module


def _install():
    for name, watch in list(_Finder.watched.items()):
        if name in sys.modules:
            del _Finder.watched[name]
            watch(sys.modules[name])
    sys.meta_path.insert(0, _Finder)


def _next():
    """The sitecustomize that would have been loaded if this one were not there; its errors are its own."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [p for p in sys.path if p.rstrip("/") != _HERE])
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    return lambda: spec.loader.exec_module(module)


try:
    _install()
except Exception:
    pass
try:
    _run = _next()
except Exception:
    _run = None
if _run:
    _run()
