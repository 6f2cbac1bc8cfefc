"""One Python context: IPython's kernel, with representations that programs can read: e2b/data of
DataFrames and e2b/chart of matplotlib figures."""
import gc
import json
import os
import random
import socket
import sys
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
DATA_CELLS_MAX = 200_000  # a larger table has its HTML and text only

# The first entry is this directory; the user's own modules must not be found before the kernel's.
sys.path = [p for p in sys.path if p not in ("", HERE)]

sys.modules["debugpy"] = None  # nobody debugs here, and it takes a third of the start

import zmq  # noqa: E402
from IPython.core.formatters import BaseFormatter  # noqa: E402
from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from traitlets import ObjectName, Unicode  # noqa: E402

del sys.modules["debugpy"]


def charts():
    """Loaded with the first figure: it needs matplotlib."""
    import importlib.util

    if "den_charts" not in sys.modules:
        spec = importlib.util.spec_from_file_location("den_charts", os.path.join(HERE, "charts.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules["den_charts"] = module
    return sys.modules["den_charts"]


def plain(value):
    """Something that JSON can say."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if hasattr(value, "isoformat"):
        return value.isoformat() if value == value else None  # NaT is not itself
    if hasattr(value, "item"):
        try:
            return plain(value.item())
        except (TypeError, ValueError):
            pass
    if value is getattr(sys.modules.get("pandas"), "NA", Ellipsis):
        return None
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    return str(value)


def data_of(frame):
    try:
        if frame.size > DATA_CELLS_MAX:
            return None
        names = [str(c) for c in frame.columns]
        return {name: [plain(v) for v in frame.iloc[:, i]] for i, name in enumerate(names)}
    except Exception:  # what cannot be said this way still has its text
        return None


def chart_of(figure):
    try:
        return charts().figure_chart(figure)
    except Exception:
        return None


class DataFormatter(BaseFormatter):
    format_type = Unicode("e2b/data")
    print_method = ObjectName("_repr_e2b_data_")
    _return_type = dict


class ChartFormatter(BaseFormatter):
    format_type = Unicode("e2b/chart")
    print_method = ObjectName("_repr_e2b_chart_")
    _return_type = dict

    def __call__(self, obj):
        # Not by for_type(): the inline backend takes figures away from all formatters that it finds.
        figure = sys.modules.get("matplotlib.figure")
        if figure and isinstance(obj, figure.Figure):
            return chart_of(obj)
        return super().__call__(obj)


class Env:
    """Variables for one cell."""

    def __init__(self):
        self.before = {}

    def put(self, values):
        self.before = {k: os.environ.get(k) for k in values}
        os.environ.update(values)

    def back(self):
        for k, v in self.before.items():
            if v is None:
                os.environ.pop(k, None)
            else:
                os.environ[k] = v
        self.before = {}


def leave():
    """exit() and quit() end the cell; a context ends when its owner says so."""
    raise SystemExit


class App(IPKernelApp):
    def init_sockets(self):
        # A reader that is slow slows the program down; without this, output would be dropped, and
        # with it the word that the cell has ended.
        context = zmq.Context.instance()
        context.sockopts[zmq.XPUB_NODROP] = 1
        context.sockopts[zmq.SNDHWM] = 256
        super().init_sockets()


def nursery(sock):
    """Waits to be told of a kernel's file, directory and output; returns in the kernel."""
    gc.freeze()
    while True:
        data, fds, _, _ = socket.recv_fds(sock, 65536, 1)
        if not data:
            os._exit(0)
        middle = os.fork()
        if not middle:
            pid = os.fork()
            if not pid:
                return become(sock, *json.loads(data), *fds)
            sock.send(str(pid).encode())
            os._exit(0)
        os.waitpid(middle, 0)
        for fd in fds:
            os.close(fd)


def become(sock, file, cwd, out):
    sock.close()
    os.setsid()
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(out)
    os.chdir(cwd)
    random.seed()  # else all would have the same
    return file


def main(file):
    app = App.instance()
    # no history file: contexts share the home, and what was typed is kept by who typed it
    app.initialize(["-f", file, "--HistoryManager.enabled=False", "--colors=NoColor",
                    "--log-level=ERROR"])
    display = app.shell.display_formatter
    for formatter in (DataFormatter(parent=display), ChartFormatter(parent=display)):
        display.formatters[formatter.format_type] = formatter
    display.formatters["e2b/data"].for_type_by_name("pandas.core.frame", "DataFrame", data_of)
    sys.modules["_den_env"] = Env()
    app.shell.ask_exit = leave
    warnings.filterwarnings("ignore", message="To exit: use")
    app.start()


if sys.argv[1] == "--nursery":
    main(nursery(socket.socket(fileno=int(sys.argv[2]))))
else:
    main(sys.argv[1])
