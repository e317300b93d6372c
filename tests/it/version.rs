use assert_cmd::Command;

#[test]
fn version_names_the_program_and_its_version() {
    let expected = format!("gc {}\n", env!("CARGO_PKG_VERSION"));
    Command::new(env!("CARGO_BIN_EXE_gc"))
        .arg("version")
        .assert()
        .success()
        .stdout(expected);
}
