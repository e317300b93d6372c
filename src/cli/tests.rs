//! What the command line understands, and what it says about mistakes.

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    let words = std::iter::once("gc").chain(line.split_whitespace());
    Cli::try_parse_from(words)
}

#[test]
fn the_command_tree_is_sound() {
    tree().debug_assert();
}

#[test]
fn documented_command_lines_are_understood() {
    for line in [
        "",
        "--json version --long",
        "version --json",
        "--city x status --all --check",
        "start p --no-wait --timeout 5m",
        "start --foreground",
        "start --standalone",
        "start -n",
        "suspend p --reason why",
        "resume",
        "agent list --state running,done --pool w --rig r --wide",
        "agent show w",
        "agent restart a b 'c*' --no-wait",
        "agent restart --all -y",
        "agent unquarantine a",
        "agent kill a b -y --reason stuck",
        "agent drain a --timeout 5m",
        "agent undrain a",
        "agent drain-check",
        "agent drain-ack w",
        "agent request-restart --no-block",
        "agent suspend a --reason why",
        "agent resume --all",
        "agent peek a -n 5 --log -f",
        "agent logs a -n 5 -f",
        "agent logs a --crash",
        "agent logs a --crash 2",
        "runtime drain-check",
        "runtime request-restart",
        "session wake w",
        "session list",
        "restart p --timeout 1s",
        "stop p --force --no-wait",
        "register p --no-wait",
        "unregister p",
        "cities --wide",
        "reload city",
        "supervisor run --detached --on-sigterm detach",
        "--home /h supervisor run --detached",
        "supervisor stop --keep-agents --no-wait",
        "events --type agent.* --type x --subject s --actor a --after 3 -n 5 -f",
        "events --watch --timeout 1s",
        "events --seq",
        "events --all --after a:1,b:2 -f",
        "help supervisor stop",
        "actors tree pat --problems --watch --interval 2s",
        "actors crash a/b",
        "actors show a/b",
        "actors flood a/b --messages 5 --held 1s",
        "top --all --interval 5s",
        "top --once --width 80 --height 24",
        "status -q -vv -y --no-input --no-color --color never",
    ] {
        assert!(parse(line).is_ok(), "{line}: {}", parse(line).unwrap_err());
    }
}

#[test]
fn contradictions_are_mistakes() {
    for line in [
        "start --standalone --no-wait",
        "supervisor stop --force --keep-agents",
        "events -f --watch",
        "events --timeout 1s",
        "start --timeout soon",
        "status --all p",
        "agent kill",
        "agent kill a --all",
        "agent logs a --crash 0",
        "agent logs a -f --crash",
        "start -n --standalone",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn a_slip_of_the_finger_gets_a_hint() {
    let told = |line| usage_error(&parse(line).unwrap_err());
    let error = told("statsu");
    assert_eq!(error.code.exit(), 2);
    assert_eq!(error.message, "unrecognized subcommand 'statsu'");
    assert_eq!(error.hint.as_deref(), Some("did you mean `status`?"));
    assert!(told("stop --forec").hint.unwrap().contains("--force"));
    assert_eq!(told("stop --zz").hint.as_deref(), Some("gc stop --help"));
    assert!(told("actors crash").message.contains("<PATH>"));
}

#[test]
fn failures_name_the_whole_command() {
    let line = ["gc", "supervisor", "stop"];
    let matches = Cli::command().try_get_matches_from(line).unwrap();
    assert_eq!(name(&matches), "supervisor stop");
}

#[test]
fn json_is_recognised_before_the_arguments_are() {
    let asks = |line: &str| {
        let args: Vec<OsString> = line.split(' ').map(Into::into).collect();
        asks_for_json(&args)
    };
    assert!(asks("gc bogus --json"));
    assert!(!asks("gc status -- --json"));
}
