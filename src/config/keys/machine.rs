//! The tables of `supervisor.toml`.

use super::city::{ANY, SOME};
use super::{Kind, Reload, Section, key};

/// The top level of `supervisor.toml`.
#[rustfmt::skip]
pub const SUPERVISOR_FILE: Section = Section::new(
    "",
    &[
        key("supervisor", Kind::Table(&SUPERVISOR), "", Reload::Hot, "The supervisor"),
        key("tenants", Kind::Dict(&TENANT), "", Reload::Hot, "Groups of cities with limits and keys of their own").later(),
        key("x", Kind::Free, "", Reload::Hot, "Yours; gc ignores it"),
    ],
)
.foreign(&[("publication", "")]);

/// `[supervisor]`: the supervisor of a machine.
#[rustfmt::skip]
pub const SUPERVISOR: Section = Section::new(
    "[supervisor]",
    &[
        key("port", Kind::Count(0, 65_535), "8080", Reload::Hot, "TCP port of the API; 0 is none").later(),
        key("bind", Kind::Command, "\"127.0.0.1\"", Reload::Hot, "Address of the API").later(),
        key("patrol_interval", Kind::Duration(SOME), "\"10s\"", Reload::Hot, "How often the registry is compared with what runs"),
        key("allow_mutations", Kind::Flag, "", Reload::Hot, "Requests may change something; if not set, on loopback or with keys").later(),
        key("auth", Kind::Word { allowed: &["none", "auto", "required"], unsupported: &[] }, "\"auto\"", Reload::Hot, "Whether requests need a key").later(),
        key("allowed_hosts", Kind::Words, "[]", Reload::Hot, "Host names the API answers to").later(),
        key("allowed_origins", Kind::Words, "[]", Reload::Hot, "Web pages that may use the API").later(),
        key("city_start_parallelism", Kind::Count(1, ANY), "4", Reload::Hot, "Cities started at once"),
        key("city_restart_delay", Kind::Duration(SOME), "\"1s\"", Reload::Hot, "Wait before a city that crashed is opened again, doubling from there"),
        key("city_restart_delay_max", Kind::Duration(SOME), "\"5m\"", Reload::Hot, "Upper bound of that wait"),
        key("on_sigterm", Kind::Word { allowed: &["stop", "detach"], unsupported: &[] }, "\"stop\"", Reload::Hot, "Whether agents are stopped with the supervisor, or run on"),
        key("log_level", Kind::Word { allowed: &["error", "warn", "info", "debug", "trace"], unsupported: &[] }, "\"info\"", Reload::Hot, "What is logged"),
        key("log_format", Kind::Word { allowed: &["text", "json"], unsupported: &[] }, "\"text\"", Reload::Hot, "How it is logged"),
    ],
);

/// `[tenants.<name>]`: cities that share limits and keys.
#[rustfmt::skip]
pub const TENANT: Section = Section::new(
    "[tenants.<name>]",
    &[
        key("cities", Kind::Words, "[]", Reload::Hot, "Names of its cities"),
        key("resource_limit", Kind::Table(&LIMIT), "", Reload::Hot, "What its cities may use together"),
        key("api_keys", Kind::KeyHashes, "[]", Reload::Hot, "Hashes of its keys, `sha256:` and 64 hex digits"),
        key("socket", Kind::Path, "", Reload::Hot, "Control socket of its own"),
    ],
);

#[rustfmt::skip]
const LIMIT: Section = Section::new(
    "[tenants.<name>.resource_limit]",
    &[
        key("max_agents", Kind::Count(0, ANY), "", Reload::Hot, "Most sessions at once"),
        key("max_cities", Kind::Count(0, ANY), "", Reload::Hot, "Most cities"),
        key("memory_max", Kind::Size, "", Reload::Hot, "Most memory, such as `512MiB`"),
        key("cpu_max", Kind::Percent, "", Reload::Hot, "Most CPU, such as `50%`"),
    ],
);
