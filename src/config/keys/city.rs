//! The tables of `city.toml` but for agents and rigs.

use std::time::Duration;

use super::agent::{AGENT, PATCH_AGENT, PATCH_PROVIDER, PATCH_RIG, RIGS};
use super::pack::{ORDER, PROVIDER};
use super::{Key, Kind, Reload, Section, key};

pub(super) const ANY: u64 = u32::MAX as u64;
pub(super) const MOST: u64 = i64::MAX as u64;
pub(super) const NONE: Duration = Duration::ZERO;
pub(super) const SOME: Duration = Duration::from_nanos(1);
pub(super) const STDIN: Kind = Kind::Word {
    allowed: &["fifo", "null"],
    unsupported: &[],
};
pub(super) const STRATEGY: Kind = Kind::Word {
    allowed: &["one_for_one", "rest_for_one", "one_for_all"],
    unsupported: &[],
};
pub(super) const ON_DRIFT: Kind = Kind::Word {
    allowed: &["restart", "drain", "idle", "report"],
    unsupported: &[],
};
pub(super) const SESSION_PROVIDER: Kind = Kind::Word {
    allowed: &["auto", "tmux", "subprocess", "exec:", "k8s", "fake", "fail"],
    unsupported: &["acp", "hybrid"],
};
const EVENT_PROVIDER: Kind = Kind::Word {
    allowed: &["file", "exec:", "fake", "fail"],
    unsupported: &[],
};
const MAIL_PROVIDER: Kind = Kind::Word {
    allowed: &["beads", "exec:", "fake", "fail"],
    unsupported: &[],
};

const INCLUDE: Key = key(
    "include",
    Kind::Words,
    "[]",
    Reload::Hot,
    "Further files, read after this one; they cannot include others",
);

#[rustfmt::skip]
const TOP: &[Key] = &[
    key("workspace", Kind::Table(&WORKSPACE), "", Reload::Hot, "The city itself"),
    key("daemon", Kind::Table(&DAEMON), "", Reload::Hot, "Supervision"),
    key("session", Kind::Table(&SESSION), "", Reload::Hot, "How agents are run"),
    key("agent", Kind::Tables(&AGENT), "", Reload::Hot, "Agents"),
    key("rigs", Kind::Tables(&RIGS), "", Reload::Hot, "Directories that agents work in"),
    key("providers", Kind::Dict(&PROVIDER), "", Reload::Drift, "Programs that agents run"),
    key("packs", Kind::Dict(&PACKS), "", Reload::Hot, "Names for packs"),
    key("patches", Kind::Table(&PATCHES), "", Reload::Hot, "Changes to what is defined elsewhere"),
    key("formulas", Kind::Table(&FORMULAS), "", Reload::Hot, "Formulas"),
    key("beads", Kind::Table(&BEADS), "", Reload::Refused, "The work store").later(),
    key("events", Kind::Table(&EVENTS), "", Reload::Hot, "The event log"),
    key("mail", Kind::Table(&MAIL), "", Reload::Hot, "Mail").later(),
    key("escalation", Kind::Table(&ESCALATION), "", Reload::Hot, "Who is told when nothing helps").later(),
    key("orders", Kind::Table(&ORDERS), "", Reload::Hot, "Defaults and changes of orders").later(),
    key("api", Kind::Table(&API), "", Reload::Hot, "The HTTP API of a standalone city").later(),
    key("x", Kind::Free, "", Reload::Hot, "Yours; gc ignores it"),
];

const FOREIGN: &[(&str, &str)] = &[
    ("dolt", "beads"),
    ("chat_sessions", ""),
    ("convergence", ""),
    ("service", ""),
    ("agent_defaults", "workspace"),
];

/// The top level of a fragment.
#[rustfmt::skip]
pub const FRAGMENT: Section = Section::new("", TOP).foreign(FOREIGN);

/// The top level of `city.toml`.
#[rustfmt::skip]
pub const CITY: Section = Section {
    header: "",
    keys: &[INCLUDE],
    also: Some((&FRAGMENT, &[])),
    edits: false,
    lenient: false,
    foreign: &[],
};

/// `[workspace]`: the city itself.
#[rustfmt::skip]
pub const WORKSPACE: Section = Section::new(
    "[workspace]",
    &[
        key("name", Kind::CityName, "", Reload::Refused, "Name of the city, unique among your cities; the directory's if not set"),
        key("provider", Kind::Text, "", Reload::Drift, "Program of agents that name neither provider nor command"),
        key("start_command", Kind::Command, "", Reload::Drift, "Command of agents without any other"),
        key("suspended", Kind::Flag, "false", Reload::Hot, "No agent runs"),
        key("includes", Kind::Words, "[]", Reload::Hot, "Packs of the whole city").joins(),
        key("default_rig_includes", Kind::Words, "[]", Reload::Hot, "Packs that `gc rig add` gives to a new rig").joins(),
        key("session_template", Kind::Template(&["Agent", "City", "Dir", "Name"]), "\"{{.Agent}}\"", Reload::Drift, "How sessions are named; a change makes other sessions"),
        key("install_agent_hooks", Kind::Words, "[]", Reload::Drift, "Hook sets of agents that do not name their own"),
        key("global_fragments", Kind::Words, "[]", Reload::Drift, "Prompt fragments of all agents").joins(),
        key("max_agents", Kind::Count(0, ANY), "0", Reload::Hot, "Most sessions at once, fixed agents first, then pools; 0 is no limit"),
    ],
);

/// `[daemon]`: supervision.
#[rustfmt::skip]
pub const DAEMON: Section = Section::new(
    "[daemon]",
    &[
        key("patrol_interval", Kind::Duration(Duration::from_millis(100)), "\"30s\"", Reload::Hot, "How often gc compares what runs with what should run; crashes do not wait for it"),
        key("max_restarts", Kind::Count(0, ANY), "5", Reload::Hot, "Charged ends within `restart_window` that mean quarantine; 0 never does"),
        key("restart_window", Kind::Duration(SOME), "\"1h\"", Reload::Hot, "Sliding window in which they are counted"),
        key("restart_strategy", STRATEGY, "\"one_for_one\"", Reload::Hot, "Who is restarted along with an agent that died: nobody, all that depend on it, or all that are connected with it by `depends_on`"),
        key("restart_delay", Kind::Duration(NONE), "\"1s\"", Reload::Hot, "Wait before the second restart in a row, doubling from there; the first is immediate"),
        key("restart_delay_max", Kind::Duration(NONE), "\"30s\"", Reload::Hot, "Upper bound of that wait; also how long a run must last to count as stable"),
        key("persist_crash_history", Kind::Flag, "false", Reload::Hot, "Charged ends and quarantines outlive the supervisor"),
        key("shutdown_timeout", Kind::Duration(NONE), "\"5s\"", Reload::Hot, "Time between interrupt and kill when an agent is stopped; 0 kills at once"),
        key("start_parallelism", Kind::Count(1, ANY), "8", Reload::Hot, "Starts in flight at once"),
        key("stop_parallelism", Kind::Count(1, ANY), "8", Reload::Hot, "Forced stops in flight at once"),
        key("check_timeout", Kind::Duration(SOME), "\"30s\"", Reload::Hot, "How long a pool's `check`, `on_boot` or `on_death` may take"),
        key("check_parallelism", Kind::Count(1, ANY), "8", Reload::Hot, "Such commands in flight at once"),
        key("on_drift", ON_DRIFT, "\"restart\"", Reload::Hot, "What a changed config does to a running agent: restart it, drain it first, restart it once it is quiet, or only say so"),
        key("drift_drain_timeout", Kind::Duration(NONE), "\"2m\"", Reload::Hot, "How long such a drain may take"),
        key("drift_idle_after", Kind::Duration(NONE), "\"2m\"", Reload::Hot, "How long an agent must be quiet for `idle`"),
        key("crash_capture_lines", Kind::Count(0, ANY), "50", Reload::Hot, "Lines of last output kept with a crash; 0 keeps none"),
        key("wisp_gc_interval", Kind::Duration(NONE), "", Reload::Hot, "How often old wisps are removed; needs `wisp_ttl`").later(),
        key("wisp_ttl", Kind::Duration(NONE), "", Reload::Hot, "Age at which a wisp is old; needs `wisp_gc_interval`").later(),
    ],
)
.foreign(&[("observe_paths", "")]);

/// `[session]`: how agents are run.
#[rustfmt::skip]
pub const SESSION: Section = Section::new(
    "[session]",
    &[
        key("provider", SESSION_PROVIDER, "\"auto\"", Reload::Swap, "What runs the agents: `auto` is tmux if it is installed, else plain processes; `exec:<script>` a program of yours; `fake` pretends and `fail` fails, for trying out a config"),
        key("socket", Kind::CityName, "", Reload::Swap, "Name of the tmux socket; the city's name if not set"),
        key("tmux_config", Kind::Path, "\"user\"", Reload::Swap, "Config of the tmux server: `user`, `none` or a path"),
        key("history_lines", Kind::Count(0, ANY), "10000", Reload::Swap, "Lines of scrollback"),
        // No default as text: a value that is set, even this one, enters the fingerprint.
        key("stdin", STDIN, "", Reload::Drift, "Standard input of agents that run as plain processes: `fifo` (if not set) stays open and carries nudges, `null` is empty, for programs that read to the end"),
        key("log_bytes", Kind::Count(1, MOST), "8388608", Reload::Hot, "Size at which the log of an agent's output is rotated"),
        key("log_keep", Kind::Count(0, ANY), "3", Reload::Hot, "Rotated logs that are kept"),
        key("startup_timeout", Kind::Duration(SOME), "\"60s\"", Reload::Hot, "How long one start may take"),
        key("setup_timeout", Kind::Duration(SOME), "\"10s\"", Reload::Hot, "How long one command of `pre_start`, `session_setup` or `session_live` may take"),
        key("exec_timeout", Kind::Duration(SOME), "\"30s\"", Reload::Hot, "How long one call of an `exec:` provider may take"),
        key("exec_start_timeout", Kind::Duration(SOME), "\"120s\"", Reload::Hot, "How long its `start` may take"),
        key("nudge_ready_timeout", Kind::Duration(NONE), "\"10s\"", Reload::Hot, "How long a nudge waits for the program to be ready"),
        key("nudge_retry_interval", Kind::Duration(SOME), "\"500ms\"", Reload::Hot, "Time between two looks at it"),
        key("nudge_lock_timeout", Kind::Duration(NONE), "\"30s\"", Reload::Hot, "How long a nudge waits for another one to finish"),
        key("debounce_ms", Kind::Count(0, 60_000), "500", Reload::Hot, "Milliseconds between typed text and Enter"),
        key("env_passthrough", Kind::Words, r#"["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ", "SSH_AUTH_SOCK", "XDG_*"]"#, Reload::Hot, "Variables agents inherit from the supervisor; `*` stands for any characters"),
        key("k8s", Kind::Table(&K8S), "", Reload::Swap, "Settings of `k8s`").later(),
    ],
)
.foreign(&[("acp", ""), ("display_ms", ""), ("remote_match", "")]);

#[rustfmt::skip]
const K8S: Section = Section::new(
    "[session.k8s]",
    &[
        key("namespace", Kind::Command, "\"gc\"", Reload::Swap, "Namespace of the pods"),
        key("image", Kind::Command, "", Reload::Swap, "Image of the pods; required with `provider = \"k8s\"`"),
        key("context", Kind::Text, "", Reload::Swap, "Context of the kubeconfig; the current one if not set"),
        key("cpu_request", Kind::Command, "\"500m\"", Reload::Swap, "Requested CPU"),
        key("mem_request", Kind::Command, "\"1Gi\"", Reload::Swap, "Requested memory"),
        key("cpu_limit", Kind::Command, "\"2\"", Reload::Swap, "Most CPU"),
        key("mem_limit", Kind::Command, "\"4Gi\"", Reload::Swap, "Most memory"),
        key("service_account", Kind::Text, "", Reload::Swap, "Account the pods run as"),
        key("image_pull_policy", Kind::Word { allowed: &["IfNotPresent", "Always", "Never"], unsupported: &[] }, "\"IfNotPresent\"", Reload::Swap, "When the image is pulled"),
    ],
)
.foreign(&[("prebaked", "")]);

#[rustfmt::skip]
const BEADS: Section = Section::new(
    "[beads]",
    &[
        key("provider", Kind::Word { allowed: &["sqlite", "bd", "file", "exec:"], unsupported: &[] }, "\"sqlite\"", Reload::Refused, "What keeps the work"),
        key("path", Kind::Path, "", Reload::Refused, "Its file, for `sqlite` and `file`; in `.gc` if not set"),
        key("timeout", Kind::Duration(SOME), "\"10s\"", Reload::Hot, "How long one call of `bd` or `exec:` may take"),
    ],
);

#[rustfmt::skip]
const EVENTS: Section = Section::new(
    "[events]",
    &[
        key("provider", EVENT_PROVIDER, "\"file\"", Reload::Refused, "What keeps the events").later(),
        key("rotate_bytes", Kind::Count(1, MOST), "67108864", Reload::Hot, "Size at which the log is rotated"),
        key("rotate_keep", Kind::Count(0, ANY), "5", Reload::Hot, "Rotated logs that are kept"),
    ],
);

#[rustfmt::skip]
const MAIL: Section = Section::new(
    "[mail]",
    &[key("provider", MAIL_PROVIDER, "\"beads\"", Reload::Hot, "What carries mail")],
);

/// `[formulas]`, of a city or a pack.
#[rustfmt::skip]
pub(super) const FORMULAS: Section = Section::new(
    "[formulas]",
    &[key("dir", Kind::Path, "\"formulas\"", Reload::Hot, "Directory of the formulas")],
);

#[rustfmt::skip]
const ESCALATION: Section = Section::new(
    "[escalation]",
    &[
        key("to", Kind::Command, "\"human\"", Reload::Hot, "Who gets the mail"),
        key("command", Kind::Command, "", Reload::Hot, "Shell line run beside it"),
        key("cooldown", Kind::Duration(NONE), "\"30m\"", Reload::Hot, "Least time between two about the same thing"),
        key("max_cooldown", Kind::Duration(NONE), "\"4h\"", Reload::Hot, "Upper bound of that time as it grows"),
        key("max_per_hour", Kind::Count(0, ANY), "10", Reload::Hot, "Most in an hour"),
    ],
);

#[rustfmt::skip]
const ORDERS: Section = Section::new(
    "[orders]",
    &[
        key("skip", Kind::Words, "[]", Reload::Hot, "Orders that do not run"),
        key("max_timeout", Kind::Duration(SOME), "", Reload::Hot, "Caps the timeout of every order"),
        key("max_parallel", Kind::Count(1, ANY), "8", Reload::Hot, "Runs in flight at once"),
        key("retries", Kind::Count(0, ANY), "0", Reload::Hot, "How often a failed run is tried again"),
        key("retry_delay", Kind::Duration(NONE), "\"10s\"", Reload::Hot, "Wait before that"),
        key("timezone", Kind::Command, "", Reload::Hot, "Time zone of schedules; the system's if not set"),
        key("overrides", Kind::Tables(&ORDER_OVERRIDE), "", Reload::Hot, "Changes of single orders"),
    ],
);

/// `[[orders.overrides]]`: changes of one order.
#[rustfmt::skip]
pub const ORDER_OVERRIDE: Section = Section::new(
    "[[orders.overrides]]",
    &[
        key("name", Kind::Command, "", Reload::Hot, "The order").required(),
        key("rig", Kind::AgentName, "", Reload::Hot, "Only the one of this rig"),
    ],
)
.editing(&ORDER, &["formula", "exec"]);

#[rustfmt::skip]
const API: Section = Section::new(
    "[api]",
    &[
        key("port", Kind::Count(0, 65_535), "9443", Reload::Hot, "TCP port; 0 is off"),
        key("bind", Kind::Command, "\"127.0.0.1\"", Reload::Hot, "Address"),
        key("allow_mutations", Kind::Flag, "false", Reload::Hot, "Requests may change something"),
    ],
);

#[rustfmt::skip]
const PACKS: Section = Section::new(
    "[packs.<name>]",
    &[
        key("source", Kind::Command, "", Reload::Hot, "URL of a git repository, or a local directory").required(),
        key("ref", Kind::Command, "", Reload::Hot, "Branch, tag or commit; HEAD if not set"),
        key("path", Kind::Command, "", Reload::Hot, "Directory of the pack within it"),
    ],
);

#[rustfmt::skip]
const PATCHES: Section = Section::new(
    "[patches]",
    &[
        key("agent", Kind::Tables(&PATCH_AGENT), "", Reload::Hot, "Changes of agents, also of those from packs"),
        key("rigs", Kind::Tables(&PATCH_RIG), "", Reload::Hot, "Changes of rigs"),
        key("providers", Kind::Tables(&PATCH_PROVIDER), "", Reload::Drift, "Changes of providers"),
    ],
);
