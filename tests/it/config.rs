//! The config of a running city, and the commands about it (config.md 5, 7 and 8).

mod agents;
mod commands;
mod diff;
mod hooks;
mod reload;
