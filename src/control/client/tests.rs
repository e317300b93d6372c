use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::*;
use crate::control::server::{ControlSocket, Handler, Limits, Reply, Serving};
use crate::ports::PortFuture;

/// Enough for any machine; reached only by a test that fails.
const PATIENCE: Patience = Patience {
    connect: Duration::from_secs(20),
    answer: Duration::from_secs(20),
};

/// For servers that are silent on purpose.
const HASTE: Patience = Patience {
    connect: Duration::from_millis(20),
    answer: Duration::from_millis(20),
};

struct Stub;

impl Handler for Stub {
    fn call(&self, op: String, params: Value) -> PortFuture<'_, Reply, WireError> {
        Box::pin(async move {
            match op.as_str() {
                "hello" => Ok(Reply::One(json!({
                    "version": "1.2", "build_id": "b", "pid": 7, "mode": "supervisor",
                    "protocol": [1],
                }))),
                "echo" => Ok(Reply::One(params)),
                "count" => {
                    let (sender, items) = mpsc::channel(4);
                    for n in 0..3 {
                        sender.send(json!(n)).await.unwrap();
                    }
                    Ok(Reply::Stream(items))
                }
                "never" => std::future::pending().await,
                other => Err(WireError::unknown_op(other)),
            }
        })
    }
}

/// A real server on its own runtime.
struct Server {
    dir: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    serving: Option<Serving>,
}

impl Server {
    fn start(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let socket = ControlSocket::bind(&dir.path().join("s.sock")).unwrap();
        let serving = runtime
            .block_on(async { socket.serve(Arc::new(Stub), limits) })
            .unwrap();
        Self {
            dir,
            runtime,
            serving: Some(serving),
        }
    }

    fn connect(&self) -> Result<Client, ClientError> {
        Client::connect(&[self.dir.path().join("s.sock")], PATIENCE)
    }
}

/// A server that reads one line and answers with `text`, then keeps the connection.
fn scripted(path: &Path, text: &'static str) -> std::thread::JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        reader.get_mut().write_all(text.as_bytes()).unwrap();
        let _ = reader.read_line(&mut line); // until the client leaves
    })
}

#[test]
fn calls_are_answered_and_refusals_keep_their_code() {
    let server = Server::start(Limits::default());
    let mut client = server.connect().unwrap();
    assert_eq!(client.hello().pid, 7);
    assert_eq!(
        client.call("echo", json!({"a": 1})).unwrap(),
        json!({"a": 1})
    );
    match client.call("bogus", json!({})) {
        Err(ClientError::Remote { code, .. }) => assert_eq!(code, Code::UnknownOp),
        other => panic!("{other:?}"),
    }
    client
        .call("echo", json!({}))
        .expect("the connection goes on");
}

#[test]
fn plain_words_are_answered_without_a_hello() {
    let server = Server::start(Limits::default());
    let sockets = [server.dir.path().join("s.sock")];
    let answer = Client::word(&sockets, "bogus", PATIENCE).unwrap();
    assert_eq!(answer, "error: unknown command");
}

#[test]
fn streams_yield_items_and_end() {
    let server = Server::start(Limits::default());
    let client = server.connect().unwrap();
    let items = client.stream("count", json!({}), None).unwrap();
    let items: Result<Vec<_>, _> = items.collect();
    assert_eq!(items.unwrap(), [json!(0), json!(1), json!(2)]);

    let client = server.connect().unwrap();
    let mut refused = client.stream("bogus", json!({}), None).unwrap();
    assert!(matches!(
        refused.next(),
        Some(Err(ClientError::Remote { .. }))
    ));
    assert!(refused.next().is_none());
}

#[test]
fn too_large_requests_are_told_so() {
    let server = Server::start(Limits::default());
    let mut client = server.connect().unwrap();
    let error = client
        .call("echo", json!({"x": "x".repeat(2 << 20)}))
        .unwrap_err();
    assert_eq!(error.code(), "too_large", "{error}");
}

#[test]
fn a_full_server_is_busy() {
    let server = Server::start(Limits {
        connections: 1,
        ..Limits::default()
    });
    let _first = server.connect().unwrap();
    assert_eq!(server.connect().unwrap_err().code(), "busy");
}

#[test]
fn the_end_of_a_stop_is_seen() {
    let mut server = Server::start(Limits::default());
    let client = server.connect().unwrap();
    let serving = server.serving.take().unwrap();
    server.runtime.block_on(serving.stop());
    assert!(client.wait_closed(PATIENCE.answer).unwrap());
    assert!(matches!(server.connect(), Err(ClientError::NotRunning)));
}

#[test]
fn absent_and_refused_mean_not_running() {
    let dir = tempfile::tempdir().unwrap();
    let (absent, stale) = (dir.path().join("absent"), dir.path().join("stale"));
    drop(UnixListener::bind(&stale).unwrap());
    let error = Client::connect(&[absent, stale], PATIENCE).unwrap_err();
    assert!(matches!(error, ClientError::NotRunning), "{error}");
    assert_eq!(error.code(), "not_running");
}

#[test]
fn later_places_are_tried_when_the_first_has_nobody() {
    let server = Server::start(Limits::default());
    let here = server.dir.path().join("s.sock");
    let nowhere = server.dir.path().join("absent");
    Client::connect(&[nowhere, here], PATIENCE).unwrap();
}

#[test]
fn closed_without_a_byte_is_denied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let error = Client::connect(&[path], PATIENCE).unwrap_err();
    server.join().unwrap();
    assert!(matches!(error, ClientError::Denied), "{error}");
}

#[test]
fn a_server_of_another_version_is_named_with_a_hint() {
    for answer in [
        "{\"v\":2,\"id\":1,\"ok\":false,\"error\":{\"code\":\"unsupported_version\",\"message\":\"no\",\"supported\":[2]}}\n",
        "{\"v\":2,\"id\":1,\"ok\":true,\"result\":{\"protocol\":[2]}}\n",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let server = scripted(&path, answer);
        let error = Client::connect(&[path], PATIENCE).unwrap_err();
        server.join().unwrap();
        assert!(error.hint().unwrap().contains("restart"));
        match error {
            ClientError::Version { supported } => assert_eq!(supported, [2]),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn nonsense_is_a_protocol_error() {
    for answer in [
        "hello there\n",
        "{\"id\":9,\"ok\":true,\"result\":{}}\n",
        "{\"id\":1,\"ok\":true}\n",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let server = scripted(&path, answer);
        let error = Client::connect(&[path], PATIENCE).unwrap_err();
        server.join().unwrap();
        assert!(
            matches!(error, ClientError::Protocol(_)),
            "{answer}: {error}"
        );
    }
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let _listener = UnixListener::bind(&path).unwrap(); // accepts nothing
    let error = Client::connect(&[path], HASTE).unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer), "{error}");
    assert_eq!(error.to_string(), "supervisor does not answer");

    let server = Server::start(Limits::default());
    let mut client = server.connect().unwrap();
    let limit = Some(Duration::from_millis(20));
    let error = client.call_within("never", json!({}), limit).unwrap_err();
    assert!(matches!(error, ClientError::NoAnswer), "{error}");
}

#[test]
fn a_full_backlog_does_not_hang_the_client() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match connect::connect(&path, HASTE.connect) {
            Ok(stream) if waiting.len() < 100 => waiting.push(stream),
            Ok(_) => panic!("the backlog has no end"),
            Err(e) => break e,
        }
    };
    assert!(matches!(error, ClientError::NoAnswer), "{error}");
}

#[test]
fn nothing_is_sent_to_the_server_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let path = dir.path().join("s.sock");
    let script = "use Socket; $| = 1; socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
                  bind(S, sockaddr_un($ARGV[0])) or die; listen(S, 5) or die; print \"up\\n\"; \
                  accept(C, S); $n = sysread(C, $b, 99); print \"got $n\\n\";";
    let server = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["perl", "-e", script])
        .arg(&path)
        .stdout(Stdio::piped())
        .spawn();
    let mut server = match server {
        Ok(server) => server,
        Err(e) => {
            println!("skipped: needs setpriv and perl: {e}");
            return;
        }
    };
    let mut said = BufReader::new(server.stdout.take().unwrap()).lines();
    if said.next().is_none() {
        println!("skipped: needs setpriv and perl");
        let _ = server.wait();
        return;
    }
    let error = Client::connect(&[path], PATIENCE).unwrap_err();
    assert!(
        matches!(error, ClientError::Foreign { uid: 65534 }),
        "{error}"
    );
    assert_eq!(error.code(), "denied");
    assert_eq!(said.next().unwrap().unwrap(), "got 0");
    server.wait().unwrap();
}
