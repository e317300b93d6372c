//! The part of the command line that one call needs.
//!
//! The whole tree of commands takes longer to build than most commands take to run, and scripts
//! call gc all the time. A word that names a command gets that command alone. Whatever does not
//! parse with it, help among it, is left to the whole tree, so that no answer differs.

use std::ffi::OsString;

use clap::{ArgMatches, Args as _, Command};

use super::globals::Globals;
use super::{
    actors, agent, cities, config, demo_agent, doctor, event, events, rig, start, status, stop,
    supervisor, top, version,
};

type Branch = (&'static str, fn(Command) -> Command);

/// Commands that scripts and agents call often, with what reads their arguments.
const BRANCHES: [Branch; 22] = [
    ("actors", actors::ActorsArgs::augment_args),
    ("agent", agent::AgentArgs::augment_args),
    ("cities", cities::CitiesArgs::augment_args),
    ("config", config::ConfigArgs::augment_args),
    ("demo-agent", demo_agent::DemoAgentArgs::augment_args),
    ("doctor", doctor::DoctorArgs::augment_args),
    ("event", event::EventArgs::augment_args),
    ("events", events::EventsArgs::augment_args),
    ("register", start::RegisterArgs::augment_args),
    ("reload", cities::ReloadArgs::augment_args),
    ("restart", start::StartArgs::augment_args),
    ("resume", agent::CityHoldArgs::augment_args),
    ("rig", rig::RigArgs::augment_args),
    ("runtime", agent::RuntimeArgs::augment_args),
    ("session", agent::SessionArgs::augment_args),
    ("start", start::StartArgs::augment_args),
    ("status", status::StatusArgs::augment_args),
    ("stop", stop::StopArgs::augment_args),
    ("supervisor", supervisor::SupervisorArgs::augment_args),
    ("suspend", agent::CityHoldArgs::augment_args),
    ("top", top::TopArgs::augment_args),
    ("version", version::VersionArgs::augment_args),
];

/// What the arguments mean, if their first word is one of these commands and they are in order.
pub(super) fn matches(args: &[OsString]) -> Option<ArgMatches> {
    let word = args.get(1)?.to_str()?;
    let (name, augment) = BRANCHES.iter().find(|(name, _)| *name == word)?;
    let alone = Globals::augment_args(Command::new("gc")).subcommand(augment(Command::new(*name)));
    alone.try_get_matches_from(args).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::FromArgMatches as _;

    fn words(line: &str) -> Vec<OsString> {
        let words = std::iter::once("gc").chain(line.split_whitespace());
        words.map(Into::into).collect()
    }

    #[test]
    fn a_branch_reads_what_the_whole_tree_reads() {
        let whole = |line| {
            let matches = crate::cli::tree()
                .try_get_matches_from(words(line))
                .unwrap();
            format!("{:?}", crate::cli::Cli::from_arg_matches(&matches).unwrap())
        };
        for line in [
            "status",
            "status p --json --check -q",
            "agent list --state running --city x",
            "version --long -vv",
            "events -f --all --home /h",
            "supervisor stop --keep-agents",
            "event emit x.y --payload {}",
            "suspend --reason why -y",
        ] {
            let alone = matches(&words(line)).unwrap();
            let alone = crate::cli::Cli::from_arg_matches(&alone).unwrap();
            assert_eq!(format!("{alone:?}"), whole(line), "{line}");
        }
    }

    #[test]
    fn help_and_mistakes_are_left_to_the_whole_tree() {
        for line in [
            "",
            "--json status",
            "statsu",
            "status --help",
            "status --bogus",
            "agent",
        ] {
            assert!(matches(&words(line)).is_none(), "{line}");
        }
    }

    #[test]
    fn branches_are_commands_in_order() {
        let tree = crate::cli::tree();
        assert!(BRANCHES.is_sorted_by_key(|(name, _)| *name));
        for (name, _) in BRANCHES {
            assert!(tree.find_subcommand(name).is_some(), "{name}");
        }
    }
}
