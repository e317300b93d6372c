//! The tables of `city.toml`.

use std::time::Duration;

use super::{Key, Kind, Reload, Section};

const ANY: u64 = u32::MAX as u64;
const SOME: Duration = Duration::from_nanos(1);
const STDIN: Kind = Kind::Word {
    allowed: &["fifo", "null"],
    unsupported: &[],
};

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reload: Reload,
    doc: &'static str,
) -> Key {
    Key {
        name,
        kind,
        default,
        reload,
        doc,
    }
}

/// The tables a file may hold; their own keys are in the sections below.
pub const TOP: Section = Section {
    header: "",
    keys: &[],
    planned: &[
        "include",
        "beads",
        "events",
        "mail",
        "formulas",
        "escalation",
        "orders",
        "api",
        "providers",
        "rigs",
        "packs",
        "patches",
    ],
    foreign: &[
        "dolt",
        "chat_sessions",
        "convergence",
        "service",
        "agent_defaults",
    ],
};

/// `[workspace]`: the city itself.
pub const WORKSPACE: Section = Section {
    header: "[workspace]",
    keys: &[
        key(
            "name",
            Kind::CityName,
            "",
            Reload::Refused,
            "Name of the city; the directory's if not set",
        ),
        key(
            "provider",
            Kind::Text,
            "",
            Reload::Drift,
            "Preset of agents that name neither preset nor command",
        ),
        key(
            "start_command",
            Kind::Command,
            "",
            Reload::Drift,
            "Command of agents without any other",
        ),
        key(
            "suspended",
            Kind::Flag,
            "false",
            Reload::Hot,
            "No agent runs",
        ),
    ],
    planned: &[
        "includes",
        "default_rig_includes",
        "session_template",
        "install_agent_hooks",
        "global_fragments",
        "max_agents",
    ],
    foreign: &[],
};

/// `[daemon]`: supervision.
pub const DAEMON: Section = Section {
    header: "[daemon]",
    keys: &[
        key(
            "patrol_interval",
            Kind::Duration(Duration::from_millis(100)),
            "\"30s\"",
            Reload::Hot,
            "Time between patrol ticks",
        ),
        key(
            "max_restarts",
            Kind::Count(0, ANY),
            "5",
            Reload::Hot,
            "Charged ends that mean quarantine; 0 never does",
        ),
        key(
            "restart_window",
            Kind::Duration(SOME),
            "\"1h\"",
            Reload::Hot,
            "Sliding window they are counted in",
        ),
        key(
            "restart_delay",
            Kind::Duration(Duration::ZERO),
            "\"1s\"",
            Reload::Hot,
            "Delay before the second restart in a row; doubles",
        ),
        key(
            "restart_delay_max",
            Kind::Duration(Duration::ZERO),
            "\"30s\"",
            Reload::Hot,
            "Upper bound of that delay",
        ),
        key(
            "shutdown_timeout",
            Kind::Duration(Duration::ZERO),
            "\"5s\"",
            Reload::Hot,
            "Grace of a planned stop; 0 kills at once",
        ),
        key(
            "start_parallelism",
            Kind::Count(1, ANY),
            "8",
            Reload::Hot,
            "Starts in flight at once",
        ),
        key(
            "stop_parallelism",
            Kind::Count(1, ANY),
            "8",
            Reload::Hot,
            "Forced stops in flight at once",
        ),
        key(
            "crash_capture_lines",
            Kind::Count(0, ANY),
            "50",
            Reload::Hot,
            "Lines of last output kept with a crash; 0 keeps none",
        ),
    ],
    planned: &[
        "restart_strategy",
        "persist_crash_history",
        "check_timeout",
        "check_parallelism",
        "on_drift",
        "drift_drain_timeout",
        "drift_idle_after",
        "wisp_gc_interval",
        "wisp_ttl",
    ],
    foreign: &["observe_paths"],
};

/// `[session]`: how agents are run.
pub const SESSION: Section = Section {
    header: "[session]",
    keys: &[
        key(
            "provider",
            Kind::Word {
                allowed: &["auto", "subprocess"],
                unsupported: &["tmux", "exec:", "k8s", "fake", "fail", "acp", "hybrid"],
            },
            "\"auto\"",
            Reload::Swap,
            "What runs the sessions",
        ),
        key(
            "startup_timeout",
            Kind::Duration(SOME),
            "\"60s\"",
            Reload::Hot,
            "How long one start may take",
        ),
        // No default as text: a value that is set, even this one, enters the fingerprint.
        key(
            "stdin",
            STDIN,
            "",
            Reload::Drift,
            "Standard input of agents: `fifo` (if not set) carries nudges, `null` is empty",
        ),
        key(
            "log_bytes",
            Kind::Count(1, i64::MAX as u64),
            "8388608",
            Reload::Hot,
            "Size at which an output log is rotated",
        ),
        key(
            "log_keep",
            Kind::Count(0, ANY),
            "3",
            Reload::Hot,
            "Rotated output logs that are kept",
        ),
        key(
            "env_passthrough",
            Kind::Texts,
            r#"["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TERM", "TMPDIR", "TZ", "SSH_AUTH_SOCK", "XDG_*"]"#,
            Reload::Hot,
            "Variables agents inherit; `*` stands for any characters",
        ),
    ],
    planned: &[
        "socket",
        "tmux_config",
        "history_lines",
        "setup_timeout",
        "exec_timeout",
        "exec_start_timeout",
        "nudge_ready_timeout",
        "nudge_retry_interval",
        "nudge_lock_timeout",
        "debounce_ms",
        "k8s",
    ],
    foreign: &["acp", "display_ms", "remote_match"],
};

/// `[[agent]]`: one agent.
pub const AGENT: Section = Section {
    header: "[[agent]]",
    keys: &[
        key(
            "name",
            Kind::AgentName,
            "",
            Reload::Hot,
            "Name of the agent; required",
        ),
        key(
            "provider",
            Kind::Text,
            "",
            Reload::Drift,
            "Preset that says what is run",
        ),
        key(
            "start_command",
            Kind::Command,
            "",
            Reload::Drift,
            "Command line; goes before any preset",
        ),
        key(
            "args",
            Kind::Texts,
            "",
            Reload::Drift,
            "Arguments: replace the preset's, or follow the command line",
        ),
        key(
            "env",
            Kind::Env,
            "{}",
            Reload::Drift,
            "Environment; `${NAME}` is taken from the supervisor's at each start",
        ),
        key(
            "work_dir",
            Kind::Path,
            "",
            Reload::Drift,
            "Working directory; the city's root if not set",
        ),
        key(
            "stdin",
            STDIN,
            "",
            Reload::Drift,
            "Standard input; [session] stdin if not set",
        ),
        key(
            "restart",
            Kind::Word {
                allowed: &["permanent", "transient", "temporary"],
                unsupported: &[],
            },
            "\"permanent\"",
            Reload::Hot,
            "When it is started again: always, after abnormal ends, never",
        ),
        key(
            "max_restarts",
            Kind::Count(0, ANY),
            "",
            Reload::Hot,
            "As in [daemon], for this agent",
        ),
        key(
            "restart_window",
            Kind::Duration(SOME),
            "",
            Reload::Hot,
            "As in [daemon], for this agent",
        ),
        key(
            "suspended",
            Kind::Flag,
            "false",
            Reload::Hot,
            "This agent does not run",
        ),
        key("description", Kind::Text, "", Reload::Hot, "For people"),
    ],
    planned: &[
        "dir",
        "scope",
        "fallback",
        "inject_fragments",
        "prompt_template",
        "prompt_mode",
        "prompt_flag",
        "nudge",
        "session",
        "pre_start",
        "session_setup",
        "session_setup_script",
        "session_live",
        "overlay_dir",
        "install_agent_hooks",
        "fingerprint_extra",
        "ready_delay_ms",
        "ready_prompt_prefix",
        "process_names",
        "idle_timeout",
        "depends_on",
        "restart_strategy",
        "on_drift",
        "every",
        "run_timeout",
        "when_degraded",
        "skip_when_idle",
        "pool",
        "heartbeat",
    ],
    foreign: &[
        "work_query",
        "sling_query",
        "default_sling_formula",
        "hooks_installed",
        "emits_permission_warning",
        "attach",
        "resume_command",
        "wake_mode",
    ],
};

/// All sections that have keys, with the name of their table.
pub const SECTIONS: &[(&str, &Section)] = &[
    ("workspace", &WORKSPACE),
    ("daemon", &DAEMON),
    ("session", &SESSION),
    ("agent", &AGENT),
];
