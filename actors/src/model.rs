//! Plain data: specs, names, states, events. No behaviour beyond their own grammar.

mod builder;
mod end;
mod event;
mod fingerprint;
mod launch;
mod name;
mod spec;
mod template;
mod view;

pub use builder::{AgentSpecBuilder, CitySpecBuilder};
pub use end::{
    AgentEnd, Began, EndClass, EndKind, ExitStatus, FailureClass, StartCause, StartFailure,
    StopReason,
};
pub use event::{Event, EventDraft, millis};
pub use fingerprint::{Fingerprint, canonical_hash, sha256_hex};
pub use launch::{Command, Dismiss, Launch, Prompt, PromptMode, RigRef, Stdin};
pub use name::{AgentName, CityName, NameError, RunToken, SessionName};
pub use spec::{
    AgentSpec, Blueprint, CitySpec, Daemon, InstanceTexts, NudgeTimes, OnDrift, PoolSpec,
    RestartLimit, RestartType, SpecError, Strategy,
};
pub use template::{Template, TemplateError};
pub use view::{
    AgentState, CityInfo, CityMode, CityStatus, CityView, ConfigState, ConfigView, InstanceView,
    MachineView, PoolView, StopSummary,
};
