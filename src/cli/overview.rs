//! Help: the grouped overview and the form of each command's page.

use clap::Command;

/// Commands by what one wants to do. A test keeps this complete.
const GROUPS: &[(&str, &[&str])] = &[
    ("Begin", &["demo", "init"]),
    (
        "Run a city",
        &[
            "start", "stop", "restart", "status", "reload", "suspend", "resume",
        ],
    ),
    ("Its agents", &["agent", "rig"]),
    ("Its config", &["config", "pack"]),
    (
        "Look inside",
        &["top", "actors", "events", "event", "doctor"],
    ),
    (
        "This machine",
        &["cities", "register", "unregister", "supervisor"],
    ),
    ("About gc", &["version", "completion", "man", "help"]),
];

/// The root command with its groups, and every command with its examples ahead of its options.
pub(super) fn dress(command: Command) -> Command {
    let groups = groups(&command);
    let template =
        "{about}\n\n{usage-heading} {usage}\n\n{before-help}Options:\n{options}{after-help}";
    each(command)
        .help_template(template)
        .before_help(groups.trim_end().to_owned())
        .after_help("gc <command> --help says more about a command.")
}

fn each(command: Command) -> Command {
    command.mut_subcommands(|sub| {
        let sub = each(sub);
        match sub.get_after_help() {
            Some(_) => {
                sub.help_template("{about}{after-help}\n\n{usage-heading} {usage}\n\n{all-args}")
            }
            None => sub,
        }
    })
}

fn groups(root: &Command) -> String {
    let mut text = String::new();
    for (title, names) in GROUPS {
        text.push_str(&format!("{title}:\n"));
        for name in *names {
            let about = root.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {name:<12}{about}\n"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn every_command_has_examples() {
        fn check(command: &Command) {
            for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
                let help = sub.get_after_help().map(ToString::to_string);
                let help = help.unwrap_or_default();
                assert!(help.starts_with("Examples:"), "{}", sub.get_name());
                check(sub);
            }
        }
        check(&crate::cli::tree());
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        grouped.sort_unstable();
        let root = crate::cli::Cli::command();
        let shown = root.get_subcommands().filter(|sub| !sub.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        shown.sort_unstable();
        assert_eq!(grouped, shown);
    }
}
