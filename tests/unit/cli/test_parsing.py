"""The grammar of the command line: what was meant, what an example looks like, what options take."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest

from holdfast.cli.main import COMMANDS, build_parser, main
from holdfast.cli.parsing import name_and_value, seconds, whole_number


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Every command that can be run."""
    families = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not families or parser.get_default("run") is not None:
        yield parser
    for family in families:
        for child in family.choices.values():
            yield from leaves(child)


EVERY_COMMAND = {one.prog: one for one in leaves(build_parser())}


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(ended.code or 0)
    output = capsys.readouterr()
    assert (code, output.out, output.err.count("\n")) == (2, "", 1), output
    return output.err.strip()


def test_every_command_is_there() -> None:
    assert {prog.removeprefix("holdfast ") for prog in EVERY_COMMAND} == {
        "serve",
        "gateway",
        "gateway doctor",
        "gateway release",
        "groups list",
        "groups describe",
        "groups delete",
        "groups add-members",
        "groups cancel-registration",
        "groups remove-members",
        "groups configure",
        "groups reset-offsets",
        "groups history",
        "groups watch",
        "topics create",
        "topics list",
        "topics describe",
        "topics delete",
        "topics add-partitions",
        "pipeline land",
        "pipeline land-compact",
        "pipeline aggregate",
        "pipeline aggregate-show",
        "pipeline forensics",
        "users add",
        "users remove",
        "users list",
        "users grant",
        "users revoke",
        "produce",
        "consume",
        "completion",
    }


@pytest.mark.parametrize("prog", EVERY_COMMAND)
def test_the_help_of_a_command_shows_an_example_that_it_understands(
    capsys: pytest.CaptureFixture[str], prog: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*prog.split()[1:], "--help"])
    assert ended.value.code == 0
    assert "example" in capsys.readouterr().out
    epilog = EVERY_COMMAND[prog].epilog or ""
    assert f"{prog} " in epilog


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_the_same_whether_it_is_loaded_alone_or_with_the_others(command: str) -> None:
    alone = {one.prog: one.format_help() for one in leaves(build_parser(command))}
    assert alone == {prog: EVERY_COMMAND[prog].format_help() for prog in alone}
    assert alone


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["groups"], "holdfast groups: the following arguments are required: COMMAND"),
        (["group", "list"], "holdfast: there is no command 'group'; did you mean 'groups'?"),
        (["groups", "descibe"], "holdfast groups: there is no command 'descibe'; did you mean 'describe'?"),
        (["topics", "qqq"], "there is no command 'qqq'; there are create, list, describe, delete, add-partitions"),
        (["groups", "list", "--jsn"], "holdfast groups list: unrecognized arguments: --jsn; did you mean '--json'?"),
        (["groups", "list", "extra"], "holdfast groups list: unrecognized arguments: extra"),
        (["groups", "describe"], "one of the arguments --group --all-groups is required"),
        (["groups", "describe", "--group", "g", "--all-groups"], "not allowed with"),
        (["groups", "describe", "--group", "g", "--members", "--state"], "not allowed with"),
        (["groups", "remove-members", "--group", "g"], "name the members"),
        (["groups", "remove-members", "--group", "g", "--instance-ids", "a,,b"], "has an empty name in it"),
        (["groups", "add-members", "--group", "g"], "the following arguments are required: --instance-ids"),
        (["groups", "add-members", "--group", "g", "--instance-ids", "a,"], "has an empty name in it"),
        (["groups", "add-members", "--group", "g", "--instance-ids", "a", "--wait-ms", "0"], "from 1 on"),
        (["groups", "cancel-registration"], "the following arguments are required: --group"),
        (["groups", "configure", "--group", "g", "--target-size", "-1"], "'-1' is not a whole number from 0 on"),
        (["groups", "configure", "--group", "g", "--standby-takeover-ms", "0"], "from 1 on"),
        (["groups", "configure", "--group", "g", "--set", "x"], "'x' is not of the form NAME=VALUE"),
        (["groups", "configure", "--group", "g", "--set", "x=1", "--unset", "x"], "x is given twice"),
        (
            ["groups", "configure", "--group", "g", "--set", "target.group.size=1", "--target-size", "2"],
            "target.group.size is given twice",
        ),
        (["groups", "reset-offsets", "--group", "g", "--all-topics"], "--to-earliest --to-latest"),
        (
            ["groups", "reset-offsets", "--group", "g", "--all-topics", "--to-offset", "-1"],
            "'-1' is not a whole number",
        ),
        (["groups", "reset-offsets", "--group", "g", "--topic", "t:a", "--to-latest"], "'t:a' is not of the form"),
        (["groups", "reset-offsets", "--group", "g", "--all-topics", "--to-datetime", "x"], "'x' is not a time"),
        (["groups", "reset-offsets", "--group", "g", "--all-topics", "--by-duration", "x"], "'x' is not a duration"),
        (["groups", "history", "--since", "yesterday"], "'yesterday' is neither a duration"),
        (
            ["topics", "create", "--topic", "t", "--config", "retention.ms"],
            "'retention.ms' is not of the form NAME=VALUE",
        ),
        (["gateway", "doctr"], "holdfast gateway: there is no command 'doctr'; did you mean 'doctor'?"),
        (["gateway", "--frob"], "holdfast gateway: unrecognized arguments: --frob"),
        (["gateway", "release"], "holdfast gateway release: the following arguments are required: GROUP"),
        (["gateway", "release", "g"], "no broker is named: give --bootstrap-server HOST:PORT"),
        (["gateway", "doctor"], "no broker is named: give --bootstrap-server HOST:PORT"),
        (["gateway", "doctor", "--bootstrap-server", "h:1", "--kafka", "x=h:1"], "'x' is no broker id"),
        (["gateway", "doctor", "--bootstrap-server", "h:1", "--kafka-set", "sasl.pasword=1"], "--kafka-set: "),
        (["gateway", "doctor", "--bootstrap-server", "h:1", "--kafka-config", "nowhere"], "cannot read nowhere: "),
        (["topics", "create", "--topic", "t", "--partitions", "0"], "'0' is not a whole number from 1 on"),
        (["topics", "delete"], "name the topics"),
        (["produce", "--topic", "t", "--key-separator", ""], "cannot be empty"),
        (["produce", "--topic", "t", "--header", "n\udcff=v"], "is not UTF-8"),
        (["consume", "--topic", "t", "--format", "{valu}"], "{valu} is no field"),
        (["consume", "--topic", "t", "--format", "{value.x}"], "{value.x} is no field"),
        (["consume", "--topic", "t", "--format", "{value"], "is not a template"),
        (["consume", "--topic", "t", "--timeout", "soon"], "'soon' is not a number of seconds"),
        (["topics", "list", "--timeout", "0.0001"], "'0.0001' is not a number of seconds from 0.001 to 2147483"),
        (["topics", "list", "--timeout", "2147484"], "'2147484' is not a number of seconds"),
        (["topics", "list", "--timeout", "2147483"], "no broker is named"),
        (["consume", "--topic", "t", "--instance-id", "x"], "--instance-id needs --group"),
        (["consume", "--topic", "^t", "--bootstrap-server", "h:1"], "a pattern of topics needs --group"),
        (["completion", "tcsh"], "invalid choice: 'tcsh'"),
        (["groups", "list", "--states", "Empty,Stabel"], "there is no state 'Stabel'; there are Empty, "),
        (["groups", "list", "--states", "empty,Reconciling"], "no broker is named"),
        (["groups", "list"], "no broker is named: give --bootstrap-server HOST:PORT"),
        (["groups", "list", "--bootstrap-server", "no port"], "holdfast groups list: "),
        (["produce", "--topic", "t", "--bootstrap-server", "h:1", "no-such-file"], "cannot read no-such-file"),
    ],
)
def test_a_command_that_makes_no_sense_is_one_sentence_and_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.delenv("HOLDFAST_BOOTSTRAP_SERVERS", raising=False)
    assert said in refusal(capsys, *arguments)


def test_lists_take_commas_and_repetition() -> None:
    options = build_parser().parse_args(
        ["groups", "remove-members", "--group-id", "g", "--instance-ids", "a, b", "--group-instance-ids", "c"]
    )
    assert (options.group, options.instance_ids, options.member_ids) == ("g", ["a", "b", "c"], [])


def test_a_list_does_not_remember_the_command_before() -> None:
    parser = build_parser()
    words = ["groups", "remove-members", "--group", "g", "--instance-ids"]
    assert parser.parse_args([*words, "a"]).instance_ids == ["a"]
    assert parser.parse_args([*words, "b"]).instance_ids == ["b"]


def test_values_of_options() -> None:
    assert (whole_number()("0"), seconds("0.5"), name_and_value("a=b=c")) == (0, 0.5, ("a", "b=c"))
    for refused in ("0", "-1", "nan", "inf", ""):
        with pytest.raises(argparse.ArgumentTypeError):
            seconds(refused)
