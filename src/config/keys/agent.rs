//! The tables of agents and of the rigs they belong to.

use std::time::Duration;

use super::city::{ANY, NONE, ON_DRIFT, SESSION_PROVIDER, SOME, STDIN, STRATEGY};
use super::pack::PROVIDER;
use super::{Kind, Reload, Section, Variables, key};

/// Variables in the texts of an agent.
pub(in crate::config) const VARIABLES: Variables = &[
    "Session",
    "Agent",
    "AgentBase",
    "Rig",
    "RigRoot",
    "CityRoot",
    "CityName",
    "WorkDir",
    "ConfigDir",
];
/// The same without those that need the working directory.
const PLACE: Variables = &[
    "Agent",
    "AgentBase",
    "Rig",
    "RigRoot",
    "CityRoot",
    "CityName",
    "ConfigDir",
];
pub(super) const PROMPT_MODE: Kind = Kind::Word {
    allowed: &["arg", "flag", "file", "none"],
    unsupported: &[],
};
const WAKE: Kind = Kind::Word {
    allowed: &["none", "nudge_if_mail", "nudge", "restart"],
    unsupported: &[],
};
const SECOND: Duration = Duration::from_secs(1);

/// `[[agent]]`: one agent.
#[rustfmt::skip]
pub const AGENT: Section = Section::new(
    "[[agent]]",
    &[
        key("name", Kind::AgentName, "", Reload::Hot, "1 to 63 letters, digits, `_`, `-`, starting with a letter or digit, without `--`. Another name is another agent").required(),
        key("dir", Kind::Dir, "\"\"", Reload::Hot, "Rig it belongs to, or directory of the city, such as `team/a`; the first part of its full name, `dir/name`"),
        key("scope", Kind::Word { allowed: &["city", "rig"], unsupported: &[] }, "", Reload::Hot, "In packs: where the agent is made; both if not set"),
        key("fallback", Kind::Flag, "false", Reload::Hot, "In packs: gives way to another agent of its name"),
        key("provider", Kind::Text, "", Reload::Drift, "Program it runs, see `[providers.<name>]`; the workspace's if not set"),
        key("start_command", Kind::Command, "", Reload::Drift, "Command line instead of a provider. One with anything but plain words goes through `sh -c`"),
        key("args", Kind::Texts, "", Reload::Drift, "Arguments: replace the provider's, or follow the command line"),
        key("inject_fragments", Kind::Words, "[]", Reload::Drift, "Prompt fragments appended to its prompt"),
        key("prompt_template", Kind::Path, "", Reload::Drift, "File with its first prompt; variables are filled in if the name ends in `.tmpl`"),
        key("prompt_mode", PROMPT_MODE, "", Reload::Drift, "How the prompt reaches the program: as last argument, as value of `prompt_flag`, as path of a file, not at all; the provider's if not set"),
        key("prompt_flag", Kind::Command, "", Reload::Drift, "Option in front of the prompt, for mode `flag`"),
        key("nudge", Kind::Text, "", Reload::Drift, "Typed once it is ready"),
        key("env", Kind::Env, "{}", Reload::Drift, "Environment, over the provider's. `${NAME}` and `${NAME:-default}` are taken from the supervisor's at each start, `$$` is a `$`; `GC_*` is reserved"),
        key("work_dir", Kind::Template(PLACE), "", Reload::Drift, "Where it runs, relative to the city; created if inside the city, must exist elsewhere; the rig, else `dir` in the city, if not set"),
        key("session", SESSION_PROVIDER, "", Reload::Drift, "As `session.provider`, for this agent"),
        key("stdin", STDIN, "", Reload::Drift, "As `session.stdin`, for this agent"),
        key("pre_start", Kind::Lines(VARIABLES), "[]", Reload::Drift, "Shell lines run before the session is created; a failure is a failed start"),
        key("session_setup", Kind::Lines(VARIABLES), "[]", Reload::Drift, "Shell lines run after it is created"),
        key("session_setup_script", Kind::Path, "", Reload::Drift, "Program run after those"),
        key("session_live", Kind::Lines(VARIABLES), "[]", Reload::Live, "Shell lines run after each start, and again alone when they change; should be harmless to repeat"),
        key("overlay_dir", Kind::Path, "", Reload::Drift, "Directory copied into `work_dir`; files the user changed are kept"),
        key("install_agent_hooks", Kind::Words, "", Reload::Drift, "Hook sets, in place of the workspace's"),
        key("fingerprint_extra", Kind::Map, "{}", Reload::Drift, "Anything; a change restarts the agent"),
        key("ready_delay_ms", Kind::Count(0, ANY), "", Reload::Hot, "Milliseconds before a run without a known prompt counts as ready; the provider's if not set"),
        key("ready_prompt_prefix", Kind::Text, "", Reload::Hot, "How the line begins on which the program waits for input; the provider's if not set"),
        key("process_names", Kind::Words, "", Reload::Hot, "It counts as alive only while one of these programs runs in its session; the provider's if not set"),
        key("description", Kind::Text, "", Reload::Hot, "For people"),
        key("suspended", Kind::Flag, "false", Reload::Hot, "This agent does not run"),
        key("idle_timeout", Kind::Duration(NONE), "\"0\"", Reload::Hot, "Time without activity after which it is stopped and started afresh; 0 never does"),
        key("depends_on", Kind::Words, "[]", Reload::Hot, "Agents that must be up before it starts: `db` is the one in the same `dir`, else the city's; `/db` is the city's; `rig/db` is a full name. A pool is up if one instance is, or if none is wanted"),
        key("restart", Kind::Word { allowed: &["permanent", "transient", "temporary"], unsupported: &[] }, "\"permanent\"", Reload::Hot, "When it is started again: always, after a crash only, never"),
        key("restart_strategy", STRATEGY, "", Reload::Hot, "As in `[daemon]`, for this agent"),
        key("max_restarts", Kind::Count(0, ANY), "", Reload::Hot, "As in `[daemon]`, for this agent"),
        key("restart_window", Kind::Duration(SOME), "", Reload::Hot, "As in `[daemon]`, for this agent"),
        key("on_drift", ON_DRIFT, "", Reload::Hot, "As in `[daemon]`, for this agent"),
        key("every", Kind::Duration(SECOND), "", Reload::Hot, "A fresh run each interval instead of one that lasts; such agents are held in this version").later(),
        key("run_timeout", Kind::Duration(SECOND), "\"5m\"", Reload::Hot, "How long such a run may last").later(),
        key("when_degraded", Kind::Word { allowed: &["run", "skip"], unsupported: &[] }, "\"run\"", Reload::Hot, "`skip`: not started while tmux is missing").later(),
        key("skip_when_idle", Kind::Flag, "false", Reload::Hot, "With `every`: no run while there is nothing to do").later(),
        key("pool", Kind::Table(&POOL), "", Reload::Hot, "Makes it a pool of several instances"),
        key("heartbeat", Kind::Table(&HEARTBEAT), "", Reload::Hot, "Checks that it is not stuck").later(),
    ],
)
.foreign(&[
    ("work_query", "pool.check"),
    ("sling_query", ""),
    ("default_sling_formula", ""),
    ("hooks_installed", "install_agent_hooks"),
    ("emits_permission_warning", "dismiss of the provider"),
    ("attach", ""),
    ("resume_command", ""),
    ("wake_mode", ""),
]);

/// `[agent.pool]`: how many instances of an agent there are.
#[rustfmt::skip]
pub const POOL: Section = Section::new(
    "[agent.pool]",
    &[
        key("min", Kind::Count(0, ANY), "0", Reload::Hot, "Least instances"),
        key("max", Kind::Limit, "", Reload::Hot, "Most instances; -1 is no limit, 0 disables the pool; `min`, at least 1, if not set"),
        key("check", Kind::Command, "", Reload::Hot, "Shell line that prints how many instances are wanted; runs in the rig, else in the city. If it fails, the last answer stays"),
        key("check_timeout", Kind::Duration(SOME), "", Reload::Hot, "As in `[daemon]`, for this pool"),
        key("drain_timeout", Kind::Duration(NONE), "\"5m\"", Reload::Hot, "How long an instance that is not wanted any more may finish its work; 0 never forces it"),
        key("on_boot", Kind::Command, "", Reload::Hot, "Shell line run once when the city starts, unless an instance was still alive"),
        key("on_death", Kind::Command, "", Reload::Hot, "Shell line run after every end of an instance"),
        key("namepool", Kind::Path, "", Reload::Hot, "File with names for the first instances, one per line; `#` begins a comment; needs `max` > 0"),
    ],
);

/// `[agent.heartbeat]`: whether an agent is stuck, and what follows.
#[rustfmt::skip]
pub const HEARTBEAT: Section = Section::new(
    "[agent.heartbeat]",
    &[
        key("file", Kind::Command, "", Reload::Hot, "File whose age counts, relative to `work_dir`; one in `.gc` if not set"),
        key("stale_after", Kind::Duration(SOME), "\"5m\"", Reload::Hot, "Age at which it is stale"),
        key("very_stale_after", Kind::Duration(SOME), "\"15m\"", Reload::Hot, "Age at which it is very stale"),
        key("on_stale", WAKE, "\"nudge_if_mail\"", Reload::Hot, "What is done then"),
        key("on_very_stale", WAKE, "\"nudge\"", Reload::Hot, "What is done then"),
        key("on_very_stale_degraded", WAKE, "\"restart\"", Reload::Hot, "What is done then while tmux is missing"),
        key("triage", Kind::Command, "", Reload::Hot, "Agent with `every` that judges first"),
        key("fallback", Kind::Word { allowed: &["guarded", "always", "off"], unsupported: &[] }, "\"guarded\"", Reload::Hot, "When the actions above step in"),
        key("renudge_after", Kind::Duration(NONE), "\"3m\"", Reload::Hot, "Least time between two actions"),
        key("restart_after", Kind::Count(0, ANY), "3", Reload::Hot, "Unanswered wakes before a restart; 0 never does"),
        key("escalate_after", Kind::Count(0, ANY), "3", Reload::Hot, "Recoveries without effect before somebody is told"),
        key("escalate_to", Kind::Command, "", Reload::Hot, "Who that is; `escalation.to` if not set"),
        key("wake_message", Kind::Text, "", Reload::Hot, "Text of a wake; `{dog}` is the triage agent"),
        key("nudge_message", Kind::Text, "", Reload::Hot, "Text of a nudge"),
    ],
);

/// `[[rigs]]`: directories that agents work in.
#[rustfmt::skip]
pub const RIGS: Section = Section::new(
    "[[rigs]]",
    &[
        key("name", Kind::AgentName, "", Reload::Hot, "As the name of an agent; unique among rigs").required(),
        key("path", Kind::Command, "", Reload::Drift, "Absolute, `~/...`, or relative to the city. While it is missing, its agents are neither started nor stopped").required(),
        key("prefix", Kind::Prefix, "", Reload::Hot, "Begins the ids of its work: 1 to 8 lower-case letters or digits, starting with a letter; made from the name if not set"),
        key("suspended", Kind::Flag, "false", Reload::Hot, "Its agents do not run"),
        key("formulas_dir", Kind::Path, "", Reload::Hot, "Formulas of its own"),
        key("includes", Kind::Words, "[]", Reload::Hot, "Packs of this rig"),
        key("overrides", Kind::Tables(&RIG_OVERRIDE), "", Reload::Hot, "Changes of its agents"),
    ],
)
.foreign(&[("default_sling_target", "")]);

/// `[[rigs.overrides]]`: changes of one agent of a rig.
#[rustfmt::skip]
pub const RIG_OVERRIDE: Section = Section::new(
    "[[rigs.overrides]]",
    &[key("agent", Kind::AgentName, "", Reload::Hot, "The agent").required()],
)
.editing(&AGENT, &["name", "dir", "scope", "fallback"]);

/// `[[patches.agent]]`: changes of one agent, wherever it is defined.
#[rustfmt::skip]
pub const PATCH_AGENT: Section = Section::new(
    "[[patches.agent]]",
    &[
        key("name", Kind::AgentName, "", Reload::Hot, "The agent").required(),
        key("dir", Kind::Dir, "\"\"", Reload::Hot, "Its `dir`"),
    ],
)
.editing(&AGENT, &["name", "dir", "scope", "fallback"]);

/// `[[patches.rigs]]`: changes of one rig.
#[rustfmt::skip]
pub(super) const PATCH_RIG: Section = Section::new(
    "[[patches.rigs]]",
    &[key("name", Kind::AgentName, "", Reload::Hot, "The rig").required()],
)
.editing(&RIGS, &["name", "formulas_dir", "includes", "overrides"]);

/// `[[patches.providers]]`: changes of one provider.
#[rustfmt::skip]
pub(super) const PATCH_PROVIDER: Section = Section::new(
    "[[patches.providers]]",
    &[key("name", Kind::Command, "", Reload::Drift, "The provider").required()],
)
.editing(&PROVIDER, &["base", "_replace"]);
