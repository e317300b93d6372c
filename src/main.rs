//! The `gc` binary.

fn main() -> std::process::ExitCode {
    gascity::cli::run()
}
