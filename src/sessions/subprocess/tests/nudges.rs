//! Messages through the pipe; that they arrive is a matter of the conformance list.

use gascity_actors::ports::{Delivery, SessionError};

use super::*;

const DELIVERED: Delivery = Delivery::Delivered { confirmed: true };
const ECHO: &str = "echo ready; while IFS= read -r line; do echo \"got $line\"; done";

impl City {
    async fn nudge(&self, name: &str, text: &str) -> Result<Delivery, SessionError> {
        self.provider
            .nudge(session(name), Fence::Any, text.to_owned())
            .await
    }
}

// Row 48.
#[tokio::test]
async fn messages_arrive_after_the_supervisor_that_started_the_agent_is_gone() {
    let mut city = City::new();
    city.shell("a", ECHO).await;
    city.provider = provider(city.root.clone());
    assert_eq!(city.nudge("a", "one\ntwo").await, Ok(DELIVERED));
    until("both lines arrive", async || {
        city.peek("a", 2).await == "got one\ngot two"
    })
    .await;
}

// Row 48.
#[tokio::test]
async fn an_agent_without_input_reads_its_end_and_cannot_be_told_anything() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let mut spec = city.spec("a", words(&["cat"]));
    let launch = Launch {
        stdin: Stdin::Null,
        ..(*spec.launch).clone()
    };
    spec.launch = Arc::new(launch.clone());
    city.start_spec(spec.clone()).await.unwrap();
    assert_eq!(next_exit(&mut events).await.1, ExitStatus::Code(0));
    assert_eq!(city.nudge("a", "hi").await, Ok(Delivery::NoSession));
    let command = words(&["sleep", "1000"]);
    spec.launch = Arc::new(Launch { command, ..launch });
    city.start_spec(spec).await.unwrap();
    let refused = city.nudge("a", "hi").await;
    assert_eq!(refused, Err(SessionError::Unsupported("nudge")));
}

#[tokio::test]
async fn a_pipe_left_by_a_run_before_swallows_no_message() {
    let city = City::new();
    let mut events = city.provider.subscribe();
    let (_, pid) = city.idle("a").await;
    kill(pid);
    next_exit(&mut events).await;
    let mut spec = city.spec("a", words(&["sleep", "1000"]));
    spec.launch = Arc::new(Launch {
        stdin: Stdin::Null,
        ..(*spec.launch).clone()
    });
    city.start_spec(spec).await.unwrap();
    let fifo = city.root.join(".gc/runtime/sessions/a.in");
    let _reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(fifo)
        .unwrap();
    let refused = city.nudge("a", "hi").await;
    assert_eq!(refused, Err(SessionError::Unsupported("nudge")));
}

#[tokio::test]
async fn large_messages_wait_for_an_agent_that_reads_slowly() {
    let city = City::new();
    city.shell(
        "a",
        "sleep 0.3; while IFS= read -r line; do echo ${#line}; done",
    )
    .await;
    let text = "x".repeat(60 << 10);
    for _ in 0..3 {
        assert_eq!(city.nudge("a", &text).await, Ok(DELIVERED));
    }
    until("all arrive", async || {
        city.peek("a", 3).await == "61440\n61440\n61440"
    })
    .await;
}
