//! What happens before the agent itself runs.

use gascity_actors::model::{FailureClass, Prompt, PromptMode, RigRef, Template};

use super::*;

impl City {
    fn launch_of(&self, command: Command) -> Launch {
        Launch {
            command,
            work_dir: self.root.join("work"),
            ..Launch::default()
        }
    }

    async fn begin(&self, name: &str, launch: Launch) -> Result<(RunToken, Started), StartFailure> {
        let mut spec = self.spec(name, Command::default());
        spec.launch = Arc::new(launch);
        self.start_spec(spec).await
    }

    async fn said(&self, name: &str, want: &str) {
        until(want, async || self.peek(name, 50).await.contains(want)).await;
    }
}

fn prompt(mode: PromptMode, flag: &str, text: &str) -> Prompt {
    let text = Template::parse_prompt(text, |_| true).unwrap();
    Prompt {
        mode,
        flag: flag.to_owned(),
        text: Some(text),
    }
}

const ARGS: &str = "for a in \"$@\"; do printf '<%s>' \"$a\"; done; echo; sleep 1000";

#[tokio::test]
async fn a_prompt_reaches_the_program_in_every_mode() {
    let city = City::new();
    let show = || words(&["sh", "-c", ARGS, "sh", "own"]);
    let text = "be \"good\" $HOME `x` {{.MOOD}}\n\n";
    for (name, mode, flag) in [
        ("arg", PromptMode::Arg, ""),
        ("flag", PromptMode::Flag, "--say"),
        ("file", PromptMode::File, ""),
        ("none", PromptMode::None, ""),
    ] {
        let mut launch = city.launch_of(show());
        launch.env.insert("MOOD".into(), "now".into());
        launch.prompt = prompt(mode, flag, text);
        city.begin(name, launch).await.unwrap();
        let file = city.root.join(format!(".gc/runtime/prompts/{name}.md"));
        let written = fs::read_to_string(&file).unwrap();
        let (head, body) = written.split_once("\n\n").unwrap();
        assert!(head.starts_with(&format!("[test] {name} • 2")), "{head}");
        assert_eq!(body, "be \"good\" $HOME `x` now\n\n");
        let whole = written.trim_end();
        let want = match mode {
            PromptMode::Arg => format!("<own><{whole}>"),
            PromptMode::Flag => format!("<own><--say><{whole}>"),
            PromptMode::File => format!("<own><{}>", file.display()),
            PromptMode::None => "<own>\n".trim_end().to_owned(),
        };
        city.said(name, &want).await;
    }
}

#[tokio::test]
async fn a_prompt_too_large_for_an_argument_says_what_to_do() {
    let city = City::new();
    let mut launch = city.launch_of(words(&["sleep", "1000"]));
    launch.prompt = prompt(PromptMode::Arg, "", &"x".repeat(121 << 10));
    let failure = city.begin("a", launch.clone()).await.unwrap_err();
    assert_eq!(
        (failure.stage, failure.class),
        ("prompt", FailureClass::Agent)
    );
    assert!(
        failure.detail.contains("prompt_mode = \"file\""),
        "{failure}"
    );
    assert!(city.facts("a").await.is_none());
    launch.command = words(&["wc", "-c"]);
    launch.prompt.mode = PromptMode::File;
    city.begin("a", launch).await.unwrap();
    city.said("a", "/prompts/a.md").await;
}

#[tokio::test]
async fn lines_before_the_start_run_in_order_in_the_agents_own_place() {
    let city = City::new();
    let mut launch = city.launch_of(Command::Shell("cat steps; sleep 1000".into()));
    launch.env.insert("MINE".into(), "7".into());
    launch.rig = Some(RigRef {
        name: "hello".into(),
        root: "/rigs/hello".into(),
    });
    launch.pre_start = vec![
        "echo one $MINE $GC_AGENT >steps".into(),
        "echo two $GC_RIG $GC_RIG_ROOT $PWD >>steps".into(),
    ];
    city.begin("a", launch).await.unwrap();
    let work = city.root.join("work");
    let want = format!("one 7 a\ntwo hello /rigs/hello {}", work.display());
    city.said("a", &want).await;
}

#[tokio::test]
async fn a_line_that_fails_or_hangs_is_a_failed_start_with_its_complaint() {
    let city = City::new();
    for (line, want) in [
        ("echo no such thing >&2; exit 4", "exit 4: no such thing"),
        ("sleep 1000", "timed out"),
    ] {
        let mut launch = city.launch_of(Command::Shell("touch ran; sleep 1000".into()));
        launch.pre_start = vec![line.into()];
        let mut spec = city.spec("a", Command::default());
        spec.launch = Arc::new(launch);
        spec.setup_timeout = Duration::from_millis(200);
        let failure = city.start_spec(spec).await.unwrap_err();
        assert_eq!(
            (failure.stage, failure.class),
            ("pre_start", FailureClass::Agent)
        );
        assert!(failure.detail.contains(want), "{failure}");
    }
    assert!(!city.root.join("work/ran").exists(), "the agent itself ran");
    assert!(city.facts("a").await.is_none());
    until("nothing is left", async || city.processes().is_empty()).await;
}

#[tokio::test]
async fn a_start_given_up_before_the_agent_runs_leaves_nothing() {
    let city = City::new();
    let mut launch = city.launch_of(Command::Shell("touch ran; sleep 1000".into()));
    launch.pre_start = vec!["touch waiting; sleep 1000".into()];
    let start = city.begin("a", launch);
    let given_up = tokio::select! {
        _ = start => false,
        () = until("it waits", async || city.root.join("work/waiting").exists()) => true,
    };
    assert!(given_up);
    until("nothing is left", async || city.processes().is_empty()).await;
    assert!(!city.root.join("work/ran").exists());
    city.idle("a").await; // the name is free
}

#[tokio::test]
async fn overlays_are_there_when_the_agent_starts() {
    let city = City::new();
    for (path, text) in [("pack/a", "pack"), ("pack/b", "pack"), ("own/b", "own")] {
        let path = city.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let mut launch = city.launch_of(Command::Shell("echo $(cat a b); sleep 1000".into()));
    launch.overlays = vec![city.root.join("pack"), city.root.join("own")];
    city.begin("a", launch.clone()).await.unwrap();
    city.said("a", "packown").await;
    launch.overlays = vec![city.root.join("missing")];
    let failure = city.begin("b", launch).await.unwrap_err();
    assert_eq!(
        (failure.stage, failure.class),
        ("overlay", FailureClass::Agent)
    );
}

#[tokio::test]
async fn an_agent_may_inherit_more_than_its_city_says() {
    let mut city = City::new();
    let name = CityName::new("test").unwrap();
    let config = SubprocessConfig::new(city.root.clone(), name, "gc".into());
    let vars = [
        ("PATH", "/usr/bin:/bin"),
        ("API_KEY", "k"),
        ("API_URL", "u"),
        ("OTHER", "o"),
    ];
    let vars = vars.map(|(name, value)| (name.into(), value.into()));
    city.provider = Subprocess::with_runner_env(config, vars).unwrap();
    let line = "echo \"<$API_KEY$API_URL$OTHER>\"; sleep 1000";
    let mut launch = city.launch_of(Command::Shell(line.into()));
    city.begin("a", launch.clone()).await.unwrap();
    city.said("a", "<>").await;
    launch.env_passthrough = vec!["API_*".into()];
    city.begin("b", launch).await.unwrap();
    city.said("b", "<ku>").await;
}
