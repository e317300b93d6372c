//! The tables of providers, packs and orders.

use super::agent::{AGENT, PATCH_AGENT, PROMPT_MODE, VARIABLES};
use super::city::{ANY, FORMULAS, NONE, SOME};
use super::{Kind, Reload, Section, key};

/// `[providers.<name>]`: a program that agents run.
#[rustfmt::skip]
pub const PROVIDER: Section = Section::new(
    "[providers.<name>]",
    &[
        key("display_name", Kind::Text, "", Reload::Hot, "For people"),
        key("base", Kind::Command, "", Reload::Drift, "Provider it is derived from"),
        key("command", Kind::Command, "", Reload::Drift, "The program"),
        key("args", Kind::Texts, "[]", Reload::Drift, "Its arguments"),
        key("prompt_mode", PROMPT_MODE, "\"arg\"", Reload::Drift, "How a prompt reaches it"),
        key("prompt_flag", Kind::Command, "", Reload::Drift, "Option in front of the prompt, for mode `flag`"),
        key("ready_delay_ms", Kind::Count(0, ANY), "", Reload::Hot, "Milliseconds before it counts as ready, if no prompt of it is known"),
        key("ready_prompt_prefix", Kind::Text, "", Reload::Hot, "How the line begins on which it waits for input"),
        key("process_names", Kind::Words, "", Reload::Hot, "Names its processes have; the command's if not set"),
        key("env", Kind::Env, "{}", Reload::Drift, "Environment"),
        key("env_passthrough", Kind::Words, "[]", Reload::Hot, "Variables it inherits beyond those of `[session]`"),
        key("dismiss", Kind::Tables(&DISMISS), "", Reload::Hot, "Dialogs that are answered until it is ready"),
        key("_replace", Kind::Flag, "false", Reload::Drift, "Starts empty instead of with the preset of that name"),
    ],
)
.foreign(&[
    ("emits_permission_warning", "dismiss"),
    ("path_check", ""),
    ("supports_acp", ""),
    ("supports_hooks", ""),
    ("instructions_file", ""),
    ("resume_flag", ""),
    ("resume_style", ""),
    ("resume_command", ""),
    ("session_id_flag", ""),
    ("permission_modes", ""),
    ("options_schema", ""),
]);

#[rustfmt::skip]
const DISMISS: Section = Section::new(
    "[[providers.<name>.dismiss]]",
    &[
        key("match", Kind::Command, "", Reload::Hot, "Text on the screen").required(),
        key("keys", Kind::Words, "", Reload::Hot, "Keys that answer it").required(),
    ],
);

/// The top level of `pack.toml`.
#[rustfmt::skip]
pub const PACK_FILE: Section = Section::new(
    "",
    &[
        key("pack", Kind::Table(&PACK), "", Reload::Hot, "The pack itself").required(),
        key("agent", Kind::Tables(&AGENT), "", Reload::Hot, "Agents"),
        key("providers", Kind::Dict(&PROVIDER), "", Reload::Drift, "Programs that agents run"),
        key("formulas", Kind::Table(&FORMULAS), "", Reload::Hot, "Formulas"),
        key("patches", Kind::Table(&PACK_PATCHES), "", Reload::Hot, "Changes to agents of packs it includes"),
        key("global", Kind::Table(&GLOBAL), "", Reload::Live, "What all agents get where the pack is included"),
        key("x", Kind::Free, "", Reload::Hot, "Yours; gc ignores it"),
    ],
)
.foreign(&[("commands", ""), ("doctor", ""), ("service", "")]);

/// `[pack]`: the pack itself.
#[rustfmt::skip]
pub const PACK: Section = Section::new(
    "[pack]",
    &[
        key("name", Kind::AgentName, "", Reload::Hot, "Name of the pack").required(),
        key("schema", Kind::Count(0, ANY), "", Reload::Hot, "Version of this format: 1").required(),
        key("version", Kind::Text, "", Reload::Hot, "For people"),
        key("requires_gc", Kind::Text, "", Reload::Hot, "Least version of gc, for people"),
        key("includes", Kind::Words, "[]", Reload::Hot, "Packs it builds on"),
        key("requires", Kind::Tables(&REQUIRES), "", Reload::Hot, "Agents that must be there"),
    ],
);

#[rustfmt::skip]
const REQUIRES: Section = Section::new(
    "[[pack.requires]]",
    &[
        key("scope", Kind::Word { allowed: &["city", "rig"], unsupported: &[] }, "\"city\"", Reload::Hot, "Where"),
        key("agent", Kind::AgentName, "", Reload::Hot, "The agent").required(),
    ],
);

#[rustfmt::skip]
const PACK_PATCHES: Section = Section::new(
    "[patches]",
    &[key("agent", Kind::Tables(&PATCH_AGENT), "", Reload::Hot, "Changes of agents")],
);

#[rustfmt::skip]
const GLOBAL: Section = Section::new(
    "[global]",
    &[key("session_live", Kind::Lines(VARIABLES), "[]", Reload::Live, "Appended to each agent in scope")],
);

/// The top level of `order.toml`.
#[rustfmt::skip]
pub const ORDER_FILE: Section = Section::new(
    "",
    &[
        key("order", Kind::Table(&ORDER), "", Reload::Hot, "The order").required(),
        key("x", Kind::Free, "", Reload::Hot, "Yours; gc ignores it"),
    ],
);

/// `[order]`: work that is started by time, condition or event.
#[rustfmt::skip]
pub const ORDER: Section = Section::new(
    "[order]",
    &[
        key("description", Kind::Text, "", Reload::Hot, "For people"),
        key("formula", Kind::Command, "", Reload::Hot, "Formula that is poured"),
        key("exec", Kind::Command, "", Reload::Hot, "Shell line that is run"),
        key("gate", Kind::Word { allowed: &["cooldown", "cron", "condition", "event", "manual"], unsupported: &[] }, "", Reload::Hot, "What starts it").required(),
        key("interval", Kind::Duration(SOME), "", Reload::Hot, "Least time between two runs"),
        key("schedule", Kind::Command, "", Reload::Hot, "When it runs, as in a crontab"),
        key("timezone", Kind::Command, "", Reload::Hot, "Time zone of the schedule"),
        key("catch_up", Kind::Word { allowed: &["none", "last", "all"], unsupported: &[] }, "\"none\"", Reload::Hot, "Which missed times are made up for"),
        key("check", Kind::Command, "", Reload::Hot, "Shell line that succeeds when it should run"),
        key("check_timeout", Kind::Duration(SOME), "", Reload::Hot, "How long that may take"),
        key("on", Kind::OneOrMore, "", Reload::Hot, "Types of events that start it; `prefix.*` is any with that beginning"),
        key("subject", Kind::Command, "", Reload::Hot, "Subject of those events"),
        key("start_from", Kind::Word { allowed: &["now", "beginning"], unsupported: &[] }, "\"now\"", Reload::Hot, "First event that counts"),
        key("pool", Kind::Command, "", Reload::Hot, "Pool that gets the work"),
        key("vars", Kind::Map, "{}", Reload::Hot, "Variables of the formula"),
        key("timeout", Kind::Duration(SOME), "", Reload::Hot, "How long a run may take"),
        key("work_timeout", Kind::Duration(SOME), "", Reload::Hot, "How long its work may take"),
        key("overlap", Kind::Word { allowed: &["skip", "queue", "allow"], unsupported: &[] }, "\"skip\"", Reload::Hot, "What happens while one runs"),
        key("retries", Kind::Count(0, ANY), "", Reload::Hot, "How often a failed run is tried again"),
        key("retry_delay", Kind::Duration(NONE), "", Reload::Hot, "Wait before that"),
        key("retry_delay_max", Kind::Duration(NONE), "\"10m\"", Reload::Hot, "Upper bound of that wait"),
        key("capture_output", Kind::Flag, "true", Reload::Hot, "Its output is kept"),
        key("enabled", Kind::Flag, "true", Reload::Hot, "It runs at all"),
    ],
);

/// The top level of `pack.lock`.
#[rustfmt::skip]
pub const LOCK_FILE: Section = Section::new(
    "",
    &[key("pack", Kind::Tables(&LOCKED), "", Reload::Hot, "Packs that were fetched")],
)
.lenient();

#[rustfmt::skip]
const LOCKED: Section = Section::new(
    "[[pack]]",
    &[
        key("name", Kind::AgentName, "", Reload::Hot, "Name of the checkout").required(),
        key("source", Kind::Command, "", Reload::Hot, "URL of the repository").required(),
        key("ref", Kind::Text, "", Reload::Hot, "Branch, tag or commit that was asked for"),
        key("path", Kind::Text, "", Reload::Hot, "Directory of the pack"),
        key("commit", Kind::Command, "", Reload::Hot, "Commit it is pinned to").required(),
        key("hash", Kind::Command, "", Reload::Hot, "Hash of the checkout").required(),
    ],
)
.lenient();
