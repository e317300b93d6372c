//! Which programs run in a session.

use super::*;

impl City {
    async fn runs(&self, name: &str, programs: &[&str]) -> bool {
        let programs = programs.iter().map(ToString::to_string).collect();
        let alive = self.provider.process_alive(session(name), programs).await;
        alive.unwrap()
    }

    /// Another name for `sleep`. A link, not a copy: a file that was just written cannot be run
    /// while a process being spawned elsewhere still has it open.
    fn program(&self, name: &str) -> String {
        let path = self.root.join(name);
        std::os::unix::fs::symlink("/bin/sleep", &path).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn programs_are_found_directly_and_below_a_shell() {
    let city = City::new();
    let tool = city.program("my-tool");
    city.launch("direct", words(&[&tool, "1000"])).await;
    city.shell("child", &format!("{tool} 1000; true")).await;
    for name in ["direct", "child"] {
        until(name, async || city.runs(name, &["no", "my-tool"]).await).await;
        assert!(!city.runs(name, &["other", "my-too"]).await);
        assert!(city.runs(name, &[]).await, "any program will do");
    }
    assert!(!city.runs("absent", &["my-tool"]).await);
    assert!(!city.runs("absent", &[]).await);
}

#[tokio::test]
async fn a_program_below_an_interpreter_goes_by_the_name_of_its_script() {
    let city = City::new();
    // An interpreter by name: a shell that takes its script as the first argument.
    std::os::unix::fs::symlink("/bin/sh", city.root.join("node")).unwrap();
    fs::write(city.root.join("agent.js"), "sleep 1000; true").unwrap();
    city.shell("a", "./node agent.js; true").await;
    until("the script", async || city.runs("a", &["agent"]).await).await;
    assert!(!city.runs("a", &["agent.js"]).await);
}

#[tokio::test]
async fn a_program_that_wandered_off_still_belongs_to_its_session() {
    let city = City::new();
    let tool = city.program("my-tool");
    let line = format!("(setsid {tool} 1000 &) ; sleep 1000; true");
    city.shell("a", &line).await;
    city.idle("b").await;
    until("the tool", async || city.runs("a", &["my-tool"]).await).await;
    assert!(!city.runs("b", &["my-tool"]).await, "not in that session");
}

#[tokio::test]
async fn a_program_that_died_under_a_live_shell_is_not_alive() {
    let city = City::new();
    let tool = city.program("my-tool");
    let line = format!("{tool} 1000 & echo $! >pid; wait; sleep 1000; true");
    city.shell("a", &line).await;
    until("the tool", async || city.runs("a", &["my-tool"]).await).await;
    let pid = fs::read_to_string(city.root.join("pid")).unwrap();
    kill(pid.trim().parse().unwrap());
    until("its end", async || !city.runs("a", &["my-tool"]).await).await;
    assert!(city.is_running("a").await);
}
