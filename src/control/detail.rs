//! A city as programs see it: what the machine and the city itself know of it, in one object.

use serde::Serialize;

use crate::model::{CityInfo, CityMode, CityView, ConfigView, InstanceView, millis};

/// Who runs a city.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Controller {
    /// Somebody does.
    pub running: bool,
    /// Its process id, as far as known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// `supervisor` or `standalone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

/// The answer of `gc status --json`. Borrows everything: with a thousand agents each copy counts.
#[derive(Debug, Serialize)]
pub struct CityDetail<'a> {
    #[serde(flatten)]
    info: &'a CityInfo,
    #[serde(flatten)]
    body: Option<Body<'a>>,
    instances: &'a [InstanceView],
    source: &'static str,
    controller: &'a Controller,
}

/// What a running city adds. Its name and path are the machine's already.
#[derive(Debug, Serialize)]
struct Body<'a> {
    provider: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    provider_why: &'a str,
    mode: CityMode,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode_reason: Option<&'a str>,
    suspended: bool,
    uptime_sec: u64,
    #[serde(skip_serializing_if = "Option::is_none", with = "millis::option")]
    last_tick_at: Option<chrono::DateTime<chrono::Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_tick_ms: Option<u64>,
    ticks_missed: u64,
    config: &'a ConfigView,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    foreign_sessions: &'a [String],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    degraded: &'a [String],
}

impl<'a> CityDetail<'a> {
    /// As told by whoever runs the city, or would.
    #[must_use]
    pub fn live(
        info: &'a CityInfo,
        view: Option<&'a CityView>,
        controller: &'a Controller,
    ) -> Self {
        Self {
            info,
            body: view.map(Body::of),
            instances: view.map_or(&[], |view| &view.instances),
            source: "live",
            controller,
        }
    }

    /// As found in the city's files and among live sessions.
    #[must_use]
    pub fn from_files(
        info: &'a CityInfo,
        instances: &'a [InstanceView],
        controller: &'a Controller,
    ) -> Self {
        Self {
            info,
            body: None,
            instances,
            source: "files",
            controller,
        }
    }
}

impl<'a> Body<'a> {
    fn of(view: &'a CityView) -> Self {
        // All of it, so that nothing new is forgotten.
        let CityView {
            name: _,
            path: _,
            provider,
            provider_why,
            mode,
            mode_reason,
            suspended,
            uptime_sec,
            last_tick_at,
            last_tick_ms,
            ticks_missed,
            config,
            instances: _,
            foreign_sessions,
            degraded,
        } = view;
        Self {
            provider,
            provider_why,
            mode: *mode,
            mode_reason: mode_reason.as_deref(),
            suspended: *suspended,
            uptime_sec: *uptime_sec,
            last_tick_at: *last_tick_at,
            last_tick_ms: *last_tick_ms,
            ticks_missed: *ticks_missed,
            config,
            foreign_sessions,
            degraded,
        }
    }
}
