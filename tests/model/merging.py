"""Merges, for the driver: which points are common, and what a merge must give."""
import json
import os

import tree as model
from parts import Wrong
from tree import Tree


class Merging:
    def alive(self, key):
        """The tree of a point, if it can still be had, there or in a fork of it; None: it cannot."""
        found = [key]
        for k in found:
            for b in self.boxes + self.ghosts:
                if b.id == k[0] and k[1] in b.points:
                    return b.points[k[1]].tree
            if k[1] == 0 and any(b.id == k[0] and b.points[0].kind == "base" for b in self.deleted):
                return self.base  # the template
            found += [f for f, o in self.alike.items() if o == k]
        return None

    def past(self, key):
        """All points that one came through, itself too, also in boxes that are gone."""
        found, todo = set(), [key]
        while todo:
            k = todo.pop()
            if k in found:
                continue
            found.add(k)
            for b in self.boxes + self.deleted:
                if b.id == k[0] and k[1] in b.points:
                    p = b.points[k[1]]
                    if p.parent is not None:
                        todo.append((b.id, p.parent))
                    if p.origin:
                        id_, _, n = p.origin.partition("@")
                        todo.append((id_, int(n)))
        return found

    def ancestors(self, a, b):
        """The newest points that both came through: more than one where they crossed."""
        pasts = {k: self.past(k) for k in self.past(a) & self.past(b) if self.alive(k) is not None}
        return [k for k in pasts if not any(k != o and k in pasts[o] for o in pasts)]

    def op_merge(self, box):
        others = [b for b in self.boxes if b is not box and b.unseen is None]
        if not others:
            return self.op_fork(box)
        kin = [b for b in others if self.ancestors((box.id, box.head), (b.id, b.head))]
        fork = self.rng.choice(kin if kin and self.rng.random() < 0.9 else others)
        if any(b.points[b.head].tree is None for b in (box, fork)):
            return
        choice = self.rng.choice([None, None, "ours", "theirs"])
        least = int(box.changed()), int(fork.changed())
        before = box.tree
        disturb = self.victim(self.rng.choice([box, box, fork]))
        rc, out = self.call("merge", "--json", "--into", box.name, *(["--" + choice] if choice else []), fork.name,
                            disturb=disturb)
        said = self.said
        if self.hit and not self.steady(fork):
            raise Wrong("%s is gone" % fork.name)
        self.sync(fork, {"manual": fork.tree}, 0 if rc else least[1], 1)
        bases = self.ancestors((box.id, box.head), (fork.id, fork.head))
        if self.kill:  # of a box whose deletion was cut short the rest may be of use until it is swept
            self.ghosts = self.deleted
            ghostly = self.ancestors((box.id, box.head), (fork.id, fork.head))
            more = [model.Merge(self.alive(k), before, fork.tree, choice, self.roots) for k in ghostly if k not in bases]
            self.ghosts = []
        merges = [model.Merge(self.alive(k), before, fork.tree, choice, self.roots) for k in bases]
        if self.kill and rc != 3:
            merges += more
        self.said = said
        self.trace.append("  bases %s of %s and %s" % (bases, (box.id, box.head), (fork.id, fork.head)))
        if rc == 0:
            return self.merged(box, fork, merges, json.loads(out), least[0])
        if rc == 4 and out:
            return self.conflicted(box, merges, json.loads(out), choice)
        if rc == 3 and not bases and "common" in said:
            self.counts["merges without a common past"] += 1
            self.sync(box, {"manual": before}, 0, 1)
            return
        self.failed("merge", rc)
        outcomes = [(before, None)] + [(m.out, None) for m in merges if not m.conflicts and not m.unsure]
        if self.hit:
            log = self.log_later(box)
            head = [n for n in log if log[n]["head"]][0]
            if any(m.unsure for m in merges) and log[head]["kind"] == "merge" and head not in box.points:
                self.adopt_tree(box, self.roots)  # it happened, and nobody can foretell how
                outcomes = [(box.tree, None)]
            self.recover(box, {"manual": before, "rollback": None, "merge": None}, outcomes)
            if box.points[box.head].kind == "merge":
                box.points[box.head].tree = box.tree.copy()
        else:
            self.sync(box, {"manual": before, "rollback": None}, 0, 2, -1)
            self.after_failure(box)

    def merged(self, box, fork, merges, told, least):
        if self.hit and not self.steady(box):
            raise Wrong("%s is gone" % box.name)
        before = box.tree
        good = [m for m in merges if not m.conflicts]
        if not good:
            raise Wrong("merged %s into %s, though there is %s" % (fork.name, box.name, [
                sorted(m.conflicts)[:4] for m in merges] or "no common past"))
        self.up(box)
        listing = self.ask(box)
        if listing is None:
            return
        listing, wrongs = listing[1], []
        for m in good:
            if m.unsure:
                self.counts["merges that nobody can foretell"] += 1
                real = Tree.told(self.ask(box, data=True)[1])
                for p in m.unsure:
                    m.out.drop(p)
                for p in m.unsure:  # it may have been left as it was, with its other names
                    same = [q for q in m.out.paths if real.paths.get(q) == real.paths[p]]
                    if same:
                        m.out.paths[p] = m.out.paths[same[0]]
                    else:
                        m.out.add(p, real.get(p))
            wrong = m.out.compare(listing)
            if wrong:
                wrongs.append(wrong[:4])
                continue
            changed = not model.same(m.out, before)
            if changed and told["checkpoint"] is None:
                raise Wrong("a merge that changed something has no checkpoint")
            box.tree = m.out
            new = self.sync(box, {"manual": before, "merge": m.out, "rollback": None}, int(changed), 2)
            made = [n for n in new if box.points[n].kind == "merge"]
            if told["checkpoint"] is not None and made[-1:] != [told["checkpoint"]]:
                raise Wrong("%s: merge said %s, log says %s" % (box.name, told["checkpoint"], made))
            self.counts["merges compared"] += 1
            if m.merged:
                self.counts["merges by line"] += 1
            return
        raise Wrong("merge of %s into %s: %s; base, ours, theirs: %s" % (fork.name, box.name, wrongs, [
            m.explain(w) for m, ws in zip(good, wrongs) for w in ws]))

    def conflicted(self, box, merges, told, choice):
        real = {c["path"] for c in told["conflicts"]}
        if choice and not self.hit:
            raise Wrong("conflicts in spite of --%s: %s" % (choice, sorted(real)[:4]))
        for m in merges:
            want, maybe = ({os.fsencode(p).decode("utf-8", "replace") for p in s} for s in (m.conflicts, m.unsure))
            if want <= real <= want | maybe:
                break
        else:
            raise Wrong("conflicts %s; the model says %s; base, ours, theirs: %s" % (sorted(real), [
                (sorted(m.conflicts), sorted(m.unsure)) for m in merges], [m.explain(repr(p)) for m in merges for p in real]))
        self.counts["conflicts compared"] += 1
        if self.hit:
            return self.recover(box, {"manual": box.tree, "rollback": box.tree}, [(box.tree, None)])
        self.sync(box, {"manual": box.tree}, 0, 1)
        if self.rng.random() < 0.3:
            self.check_tree(box)
