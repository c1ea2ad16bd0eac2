"""For any graph with blocks and lenient needs: who is ready or lost is as a naive model says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct, field

from headway.plans.graph import Graph, Need
from headway.plans.ready import DONE, FAILED, LOST, PENDING, READY, ReadySet
from tests.property.engine_runs import blocks_in, graphs, is_in, reductions

Place = tuple[int, int]
SIZES = st.sampled_from((0, 1, 2, 3, 5, 7))


class Model(Struct):
    """Everything is found again whenever it is asked for, by looking at every task."""

    graph: Graph
    sizes: dict[int, int]
    done: set[Place] = field(default_factory=set)
    failed: set[Place] = field(default_factory=set)
    lost: set[Place] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    """Groups of which nobody will ever start."""

    def look(self) -> set[Place]:
        """Who is ready; who is lost, and which groups are gone, is found on the way."""
        self.lost, self.gone = set(), set()
        ready: set[Place] = set()
        for group in self.graph.order:
            if any(self._loses_all(group, need) for need in self.graph.groups[group].needs):
                self.gone.add(group)
            for place in self.members(group) - self.done - self.failed:
                if group in self.gone or self._is_lost(place):
                    self.lost.add(place)
                elif self._is_ready(place):
                    ready.add(place)
        return ready

    def members(self, group: int) -> set[Place]:
        return {(group, member) for member in range(self.sizes.get(group, 0))}

    def needed(self, place: Place, need: Need) -> set[Place]:
        return {one for one in self.members(need.group) if is_in(need, one[1], place[1])}

    def is_whole(self, group: int, need: Need) -> bool:
        """Whether a need is of all of a group: by what it says, or because it is one block."""
        return not need.block or self.graph.groups[group].count in {0, 1}

    def has_ended(self, group: int, *, is_lenient: bool) -> bool:
        if group not in self.sizes:
            return False
        members, ended = self.members(group), self.done
        if is_lenient:
            ended = ended | self.failed | self.lost
        if members or (is_lenient and group in self.gone):
            return members <= ended
        needs = [need for need in self.graph.groups[group].needs if self.is_whole(group, need)]
        return all(self.has_ended(need.group, is_lenient=need.is_lenient) for need in needs)

    def _loses_all(self, group: int, need: Need) -> bool:
        if need.group in self.gone and (need.group not in self.sizes or not need.is_lenient):
            return True
        is_hurt = bool(self.members(need.group) & (self.failed | self.lost))
        return is_hurt and not need.is_lenient and self.is_whole(group, need)

    def _is_lost(self, place: Place) -> bool:
        needs = [need for need in self.graph.groups[place[0]].needs if not need.is_lenient]
        return any(self.needed(place, need) & (self.failed | self.lost) for need in needs)

    def _is_ready(self, place: Place) -> bool:
        for need in self.graph.groups[place[0]].needs:
            if self.is_whole(place[0], need):
                is_met = self.has_ended(need.group, is_lenient=need.is_lenient)
            else:
                ended = self.done | (self.failed | self.lost if need.is_lenient else set())
                is_met = self.needed(place, need) <= ended
            if not is_met:
                return False
        return True


class Course(Struct):
    """A ready set and the model of it, to which the same happens."""

    model: Model
    ready: ReadySet
    found: list[tuple[int, int]] = field(default_factory=list)
    """Groups whose size was told, in this order, and their sizes."""
    known: set[Place] = field(default_factory=set)
    """Who was ready when it was last looked at."""

    @classmethod
    def of(cls, graph: Graph) -> Course:
        sizes = {i: group.count for i, group in enumerate(graph.groups) if group.count is not None}
        one = cls(Model(graph, sizes), ReadySet(graph))
        one.check(one.ready.open(), set())
        return one

    def places(self, ranges: list[range]) -> list[Place]:
        return [self.ready.numbers.place(task) for tasks in ranges for task in tasks]

    def check(self, freed: list[range], ended: set[Place]) -> None:
        """What became ready is what the model says, each once; everybody is where it says."""
        ready = self.model.look()
        told = self.places(freed)
        assert len(set(told)) == len(told)
        assert set(told) == ready - self.known
        assert self.known - ended <= ready, "nobody who was ready is not any more"
        self.known = ready
        states, numbers = self.ready.states, self.ready.numbers
        here: dict[int, set[Place]] = {state: set() for state in range(6)}
        for task, state in enumerate(states):
            here[state].add(numbers.place(task))
        assert here[READY] == ready
        assert here[DONE] == self.model.done
        assert here[FAILED] == self.model.failed
        assert here[LOST] == self.model.lost
        gone, sizes = self.model.gone, self.model.sizes
        assert {group for group, is_lost in enumerate(self.ready.is_lost) if is_lost} == gone
        unknown = set(range(len(self.model.graph))) - sizes.keys()
        assert self.ready.unknown == len(unknown - gone)
        for group in range(len(self.model.graph)):
            assert self.ready.is_done(group) == self.model.has_ended(group, is_lenient=True)

    def finish(self, place: Place) -> None:
        self.model.done.add(place)
        self.check(self.ready.done(self.ready.numbers.task_of(*place)), {place})

    def fail(self, place: Place) -> None:
        lost = set(self.model.lost)
        task = self.ready.numbers.task_of(*place)
        doomed = self.ready.doomed(task)
        found, freed = self.ready.fail(task)
        self.model.failed.add(place)
        self.check(freed, {place})
        assert found == doomed == sorted(found, key=lambda r: r.start)
        assert len(self.places(found)) == len(self.model.lost - lost)
        assert set(self.places(found)) == self.model.lost - lost

    def unknown(self) -> list[int]:
        """Groups whose size somebody has to tell."""
        groups = enumerate(self.model.graph.groups)
        told = [i for i, group in groups if not any(need.block for need in group.needs)]
        return [i for i in told if i not in self.model.sizes and i not in self.model.gone]

    def find(self, group: int, count: int) -> None:
        """A size is told, and so are those that follow from it."""
        self.found.append((group, count))
        self.check(self._find(group, count), set())

    def _find(self, group: int, count: int) -> list[range]:
        freed = self._expand(group, count)
        for other in self.model.graph.order:
            if other not in self.model.sizes and other not in self.model.gone:
                for need in self.model.graph.blocks[other]:
                    if (
                        size := blocks_in(self.model.sizes.get(need.group), need.block)
                    ) is not None:
                        freed += self._expand(other, size)
        return freed

    def _expand(self, group: int, count: int) -> list[range]:
        self.model.sizes[group] = count
        return self.ready.expand(group, count)

    def resume(self) -> None:
        """Another process goes on: who failed, and who was lost by it, is tried again."""
        again = Course.of(self.model.graph)
        for group, count in self.found:
            again._find(group, count)
        done = [again.ready.numbers.task_of(*place) for place in self.model.done]
        assert again.ready.restore(done) == len(done)
        again.model.done = self.model.done
        again.known = set()
        again.check(again.ready.open(), set())
        self.model, self.ready, self.known = again.model, again.ready, again.known

    def recount(self) -> None:
        """Counted again in the middle, everybody is where it was."""
        before = bytes(self.ready.states)
        assert self.ready.restore(()) == 0
        assert sum(map(len, self.ready.open())) == len(self.known)
        assert bytes(self.ready.states) == before


@given(st.one_of(graphs(), reductions()), st.data())
@settings(max_examples=400)
def test_who_is_ready_and_who_is_lost_is_as_the_model_says(
    graph: Graph, data: st.DataObject
) -> None:
    course = Course.of(graph)
    resumes = 0
    while course.known or course.unknown():
        choices = ["finish", "fail"] if course.known else []
        choices += ["find", "find"] if course.unknown() else []
        choices += ["resume", "recount"] if resumes < 4 else []
        verb = data.draw(st.sampled_from(choices))
        if verb in {"finish", "fail"}:
            place = data.draw(st.sampled_from(sorted(course.known)))
            (course.finish if verb == "finish" else course.fail)(place)
        elif verb == "find":
            course.find(data.draw(st.sampled_from(course.unknown())), data.draw(SIZES))
        else:
            resumes += 1
            {"resume": course.resume, "recount": course.recount}[verb]()
    assert PENDING not in course.ready.states
    assert READY not in course.ready.states
    assert course.ready.unknown == 0
