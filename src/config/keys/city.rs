//! The tables of `city.toml`.

use std::time::Duration;

use super::agent::{AGENT, POOL, RIGS};
use super::{Kind, Reload, Section, key};

pub(super) const ANY: u64 = u32::MAX as u64;
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
        key(
            "max_agents",
            Kind::Count(0, ANY),
            "0",
            Reload::Hot,
            "Most sessions at once; 0 is no limit",
        ),
    ],
    planned: &[
        "includes",
        "default_rig_includes",
        "session_template",
        "install_agent_hooks",
        "global_fragments",
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
        key(
            "restart_strategy",
            STRATEGY,
            "\"one_for_one\"",
            Reload::Hot,
            "Who is restarted along with an agent that died",
        ),
        key(
            "persist_crash_history",
            Kind::Flag,
            "false",
            Reload::Hot,
            "Charged ends and quarantines outlive the supervisor",
        ),
        key(
            "check_timeout",
            Kind::Duration(SOME),
            "\"30s\"",
            Reload::Hot,
            "How long a pool's `check`, `on_boot` or `on_death` may take",
        ),
        key(
            "on_drift",
            ON_DRIFT,
            "\"restart\"",
            Reload::Hot,
            "What a changed config does to a running agent",
        ),
        key(
            "drift_drain_timeout",
            Kind::Duration(Duration::ZERO),
            "\"2m\"",
            Reload::Hot,
            "How long a drain because of a changed config may take",
        ),
        key(
            "drift_idle_after",
            Kind::Duration(Duration::ZERO),
            "\"2m\"",
            Reload::Hot,
            "Quiet time after which `on_drift = \"idle\"` restarts",
        ),
    ],
    planned: &["check_parallelism", "wisp_gc_interval", "wisp_ttl"],
    foreign: &["observe_paths"],
};

/// `[session]`: how agents are run.
pub const SESSION: Section = Section {
    header: "[session]",
    keys: &[
        key(
            "provider",
            Kind::Word {
                allowed: &["auto", "subprocess", "fake", "fail"],
                unsupported: &["tmux", "exec:", "k8s", "acp", "hybrid"],
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

/// All sections that have keys, with the name of their table.
pub const SECTIONS: &[(&str, &Section)] = &[
    ("workspace", &WORKSPACE),
    ("daemon", &DAEMON),
    ("session", &SESSION),
    ("rigs", &RIGS),
    ("agent", &AGENT),
    ("agent.pool", &POOL),
];
