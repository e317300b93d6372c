//! The `gc` binary: parse arguments, run the command, map the result to an exit code.

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "gc", version, about = "Supervises fleets of coding agents")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the version
    Version,
}

fn main() {
    match Cli::parse().command {
        Command::Version => println!("gc {}", env!("CARGO_PKG_VERSION")),
    }
}
