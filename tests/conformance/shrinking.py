"""A failing run made small: fewer steps, fewer members, fewer peculiarities; and the rest written as a scenario."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.conformance.paired_run import Result
from tests.conformance.steps import Role, Run, Step
from tests.conformance.versions import NEWEST

Differs = Callable[[Run], bool]
MAX_RUNS = 400
"""What is not small by then stays as it is."""


def shrunk(run: Run, differs: Differs) -> Run:
    """The smallest run that can be found and still differs."""
    return _Shrinking(run, differs).smallest()


class _Shrinking:
    def __init__(self, run: Run, differs: Differs) -> None:
        self._run = run
        self._differs = differs
        self._runs_left = MAX_RUNS
        self._alike: set[Run] = set()
        """Tried before, in vain."""

    def smallest(self) -> Run:
        before = None
        while before != self._run:
            before = self._run
            self._drop_steps()
            for simpler in (self._simpler_runs, self._simpler_roles, self._simpler_steps):
                self._simplify(simpler)
        return self._run

    def _takes(self, run: Run) -> bool:
        if self._runs_left == 0 or run in self._alike:
            return False
        self._runs_left -= 1
        if self._differs(run):
            self._run = run
            return True
        self._alike.add(run)
        return False

    def _drop_steps(self) -> None:
        """Large parts first, from the end: what comes after the difference goes at once."""
        size = len(self._run.steps)
        while size:
            end = len(self._run.steps)
            while end > 0:
                steps = self._run.steps
                begin = max(end - size, 0)
                if begin < end and len(steps) > end - begin:
                    self._takes(replace(self._run, steps=steps[:begin] + steps[end:]))
                end = begin
            size //= 2

    def _simplify(self, variants: Callable[[Run], Iterator[Run]]) -> None:
        """Takes the first simpler variant that differs, as long as there is one."""
        while any(self._takes(variant) for variant in variants(self._run)):
            pass

    @staticmethod
    def _simpler_runs(run: Run) -> Iterator[Run]:
        needed = {name for step in run.steps for name in step.named()}
        roles = tuple(role for role in run.roles if role.name in needed)
        if roles != run.roles:
            yield replace(run, roles=roles)
        if run.hasty:
            yield replace(run, hasty=False)
        if run.admin_row != NEWEST:
            yield replace(run, admin_row=NEWEST)

    @staticmethod
    def _simpler_roles(run: Run) -> Iterator[Run]:
        for number, role in enumerate(run.roles):
            for simpler in (replace(role, row=NEWEST), replace(role, offer="range"), replace(role, instance_id=None)):
                if simpler != role:
                    yield replace(run, roles=_with(run.roles, number, simpler))

    @staticmethod
    def _simpler_steps(run: Run) -> Iterator[Run]:
        for number, step in enumerate(run.steps):
            simpler = [step.without(key) for key, _ in step.said]
            if step.at_once:
                simpler.append(replace(step, at_once=False))
            for one in simpler:
                yield replace(run, steps=_with_step(run.steps, number, one))


def _with(roles: tuple[Role, ...], number: int, role: Role) -> tuple[Role, ...]:
    return (*roles[:number], role, *roles[number + 1 :])


def _with_step(steps: tuple[Step, ...], number: int, step: Step) -> tuple[Step, ...]:
    return (*steps[:number], step, *steps[number + 1 :])


def as_scenario(run: Run, result: Result) -> str:
    """To be pasted under scenarios/, and given a name that says what it shows."""
    reported = textwrap.indent("\n".join(f"# {line}" for line in result.difference), "    ")
    body = textwrap.indent("\n".join(result.script), "    ")
    return f"@scenario(since=NEWEST)\ndef found_by_seed_{run.seed}(recorder: Recorder) -> None:\n{reported}\n{body}\n"
