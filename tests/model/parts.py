"""What the model has of a box, and what can be wrong with it."""
import tree as model


class Wrong(Exception):
    """The real thing is not as the model says."""


class NoSpace(Exception):
    """A step that a full disk ended, and that said so."""


class Point:
    def __init__(self, tree, parent, kind, origin=None):
        self.tree, self.parent, self.kind, self.origin = tree, parent, kind, origin
        self.tags = set()


class Box:
    def __init__(self, name, id_, tree, manual):
        self.name, self.id, self.manual = name, id_, manual
        self.tree = tree
        self.points = {0: Point(tree.copy(), None, "base")}
        self.head = 0
        self.running = True
        self.unseen = None    # paths that an exec may have written to on a full disk
        self.touched = False  # written to since head, though maybe nothing differs

    def forget(self, numbers):
        """These were pruned: who came from one comes from its parent."""
        for n in sorted(numbers):
            for p in self.points.values():
                if p.parent == n:
                    p.parent = self.points[n].parent
            del self.points[n]

    def changed(self):
        at = self.points[self.head].tree
        return at is not None and not model.same(at, self.tree)
