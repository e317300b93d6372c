use std::future::Future;
use std::process::Command;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::Notify;

use super::*;
use crate::control::wire::Code;

const PATIENCE: Duration = Duration::from_secs(20);

/// Answers like a small supervisor; `slow` waits to be released.
#[derive(Default)]
struct Stub {
    release: Notify,
    started: Notify,
    items: Mutex<Option<mpsc::Sender<Value>>>,
}

impl Handler for Stub {
    fn call(&self, op: String, params: Value) -> PortFuture<'_, Reply, WireError> {
        Box::pin(async move {
            match op.as_str() {
                "ping" => Ok(Reply::One(json!({"pid": 42}))),
                "status" => Ok(Reply::One(json!({"ready": true}))),
                "stop" => Ok(Reply::One(
                    json!({"stopping": true, "mode": params["mode"]}),
                )),
                "reload" => Err(WireError::new(Code::Busy, "not queued")),
                "slow" => {
                    self.started.notify_one();
                    self.release.notified().await;
                    Ok(Reply::One(json!({})))
                }
                "panic" => panic!("a bug"),
                "stream" => {
                    let (sender, items) = mpsc::channel(4);
                    sender.send(json!({"n": 1})).await.unwrap();
                    *self.items.lock().unwrap() = Some(sender);
                    self.started.notify_one();
                    Ok(Reply::Stream(items))
                }
                other => Err(WireError::unknown_op(other)),
            }
        })
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    stub: Arc<Stub>,
    serving: Serving,
}

impl Fixture {
    fn start(limits: Limits) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let stub = Arc::new(Stub::default());
        let socket = ControlSocket::bind(&dir.path().join("s.sock")).unwrap();
        let serving = socket.serve(stub.clone(), limits).unwrap();
        Self { dir, stub, serving }
    }

    async fn connect(&self) -> BufReader<UnixStream> {
        BufReader::new(UnixStream::connect(self.serving.path()).await.unwrap())
    }

    /// Sends `text` on a new connection and reads to the end.
    async fn say(&self, text: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.write_all(text.as_ref()).await.unwrap();
        rest(&mut client).await
    }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .expect("in time")
}

async fn rest(client: &mut BufReader<UnixStream>) -> String {
    let mut text = String::new();
    soon(client.read_to_string(&mut text)).await.unwrap();
    text
}

async fn line(client: &mut BufReader<UnixStream>) -> Value {
    let mut text = String::new();
    soon(client.read_line(&mut text)).await.unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text:?}"))
}

const AT_ONCE: Duration = Duration::from_millis(10);

#[tokio::test]
async fn plain_words_get_one_answer_and_are_closed() {
    let server = Fixture::start(Limits::default());
    let check = async |word: &str, answer: &str| {
        assert_eq!(server.say(word).await, answer, "{word:?}");
    };
    check("ping\n", "42\n").await;
    check("ping\r\nping\n", "42\n").await;
    check("status\n", "{\"ready\":true}\n").await;
    check("stop\n", "ok\n").await;
    check("reload\n", "busy\n").await;
    check("bogus\n", "error: unknown command\n").await;
    check("\n", "error: unknown command\n").await;
    check(
        "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        "error: unknown command\n",
    )
    .await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(100));
    check(&long, "error: unknown command\n").await;
    check(&"x".repeat(65), "error: too_large\n").await;
}

#[tokio::test]
async fn requests_come_in_sequence_on_one_connection() {
    let server = Fixture::start(Limits::default());
    let mut client = server.connect().await;
    let requests = concat!(
        r#"{"v":1,"id":[1],"op":"ping"}"#,
        "\n",
        r#"{"id":2,"op":"stop","params":{"mode":"force"}}"#,
        "\n",
        r#"{"id":3,"op":"bogus"}"#,
        "\n",
        r#"{"v":2,"id":4,"op":"ping"}"#,
        "\n",
        r#"{"id":5,"op":7}"#,
        "\n",
        r#"{"id":6,"op":"panic"}"#,
        "\n",
        r#"{"id":7,"op":"ping"}"#,
        "\n",
    );
    client.write_all(requests.as_bytes()).await.unwrap();
    let ping = json!({"v": 1, "id": [1], "ok": true, "result": {"pid": 42}});
    assert_eq!(line(&mut client).await, ping);
    assert_eq!(line(&mut client).await["result"]["mode"], "force");
    assert_eq!(line(&mut client).await["error"]["code"], "unknown_op");
    let version = line(&mut client).await;
    assert_eq!(version["error"]["code"], "unsupported_version");
    assert_eq!(version["error"]["supported"], json!([1]));
    assert_eq!(line(&mut client).await["error"]["code"], "bad_request");
    assert_eq!(line(&mut client).await["error"]["code"], "internal");
    assert_eq!(line(&mut client).await["id"], 7);
}

#[tokio::test]
async fn two_mebibytes_are_too_large_whatever_the_dialect() {
    let server = Fixture::start(Limits::default());
    for (start, code) in [(b'{', "\"code\":\"too_large\""), (b'x', "error: too_large")] {
        let mut client = server.connect().await;
        let mut flood = vec![b'x'; 2 << 20];
        flood[0] = start;
        client.write_all(&flood).await.unwrap();
        let answer = rest(&mut client).await;
        assert!(answer.contains(code), "{answer}");
        assert_eq!(answer.lines().count(), 1);
    }
}

#[tokio::test]
async fn broken_json_and_bad_utf8_get_one_error_and_are_closed() {
    let server = Fixture::start(Limits::default());
    for bad in [
        &b"{nonsense\n{\"op\":\"ping\"}\n"[..],
        b"{\"op\":\"\xff\"}\n",
    ] {
        let answer = server.say(bad).await;
        assert!(answer.contains("\"bad_request\""), "{answer}");
        assert_eq!(answer.lines().count(), 1);
    }
    assert_eq!(server.say(b"\xff\xfe\n").await, "error: unknown command\n");
}

#[tokio::test]
async fn a_silent_client_is_closed() {
    let server = Fixture::start(Limits {
        first_byte: AT_ONCE,
        ..Limits::default()
    });
    assert_eq!(server.say("").await, "");
}

#[tokio::test]
async fn an_unfinished_line_is_a_timeout() {
    let server = Fixture::start(Limits {
        full_line: AT_ONCE,
        ..Limits::default()
    });
    assert_eq!(server.say("pi").await, "error: timeout\n");
    let unfinished = server.say("{\"op\":").await;
    assert!(unfinished.contains("\"timeout\""), "{unfinished}");
}

#[tokio::test]
async fn an_idle_client_is_closed_after_its_answer() {
    let server = Fixture::start(Limits {
        idle: AT_ONCE,
        ..Limits::default()
    });
    let answered = server.say("{\"op\":\"ping\"}\n").await;
    assert_eq!(answered.lines().count(), 1);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_busy_until_one_leaves() {
    let server = Fixture::start(Limits {
        connections: 2,
        ..Limits::default()
    });
    let (mut one, mut two) = (server.connect().await, server.connect().await);
    for client in [&mut one, &mut two] {
        client.write_all(b"{\"op\":\"ping\"}\n").await.unwrap();
        line(client).await;
    }
    assert_eq!(server.say("").await, "busy\n");
    drop(one);
    soon(async { while server.say("ping\n").await != "42\n" {} }).await;
}

#[tokio::test]
async fn a_waiting_request_delays_no_other_client() {
    let server = Fixture::start(Limits::default());
    let mut slow = server.connect().await;
    slow.write_all(b"{\"id\":1,\"op\":\"slow\"}\n")
        .await
        .unwrap();
    soon(server.stub.started.notified()).await;
    assert_eq!(server.say("ping\n").await, "42\n");
    server.stub.release.notify_one();
    assert_eq!(line(&mut slow).await["ok"], true);
}

#[tokio::test]
async fn streams_send_items_and_then_done() {
    let server = Fixture::start(Limits::default());
    let mut client = server.connect().await;
    client
        .write_all(b"{\"id\":1,\"op\":\"stream\"}\n")
        .await
        .unwrap();
    let first = json!({"v": 1, "id": 1, "ok": true, "item": {"n": 1}});
    assert_eq!(line(&mut client).await, first);
    let sender = server.stub.items.lock().unwrap().take().unwrap();
    sender.send(json!({"n": 2})).await.unwrap();
    assert_eq!(line(&mut client).await["item"]["n"], 2);
    drop(sender);
    assert_eq!(line(&mut client).await["done"], true);
    client
        .write_all(b"{\"id\":2,\"op\":\"ping\"}\n")
        .await
        .unwrap();
    assert_eq!(
        line(&mut client).await["id"],
        2,
        "and the connection goes on"
    );
}

#[tokio::test]
async fn a_stream_ends_when_its_client_leaves_but_not_when_it_only_listens() {
    let server = Fixture::start(Limits::default());
    let mut listener = server.connect().await;
    listener.write_all(b"{\"op\":\"stream\"}\n").await.unwrap();
    listener.shutdown().await.unwrap();
    line(&mut listener).await;
    let sender = server.stub.items.lock().unwrap().take().unwrap();
    sender.send(json!({"n": 2})).await.unwrap();
    assert_eq!(line(&mut listener).await["item"]["n"], 2);
    drop(listener);
    soon(sender.closed()).await;
}

#[tokio::test]
async fn stopping_ends_connections_answers_what_waits_and_removes_the_file() {
    let server = Fixture::start(Limits::default());
    let (mut idle, mut slow) = (server.connect().await, server.connect().await);
    slow.write_all(b"{\"id\":1,\"op\":\"slow\"}\n")
        .await
        .unwrap();
    soon(server.stub.started.notified()).await;
    let path = server.serving.path().to_owned();
    soon(server.serving.stop()).await;
    assert_eq!(rest(&mut idle).await, "");
    assert!(rest(&mut slow).await.contains("\"shutting_down\""));
    assert!(!path.exists());
    drop(server.dir);
}

#[tokio::test]
async fn stale_sockets_are_replaced_and_foreign_ones_survive_the_stop() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    drop(StdListener::bind(&path).unwrap());
    assert!(path.exists(), "a leftover, as after kill -9");
    let first = ControlSocket::bind(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = ControlSocket::bind(&path).unwrap();
    drop(first);
    assert!(path.exists(), "it belongs to the second");
    drop(second);
    assert!(!path.exists());
}

#[test]
fn anything_but_a_socket_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.sock");
    fs::write(&path, "precious").unwrap();
    let error = ControlSocket::bind(&path).unwrap_err();
    let expected = format!("{} exists and is not a socket", path.display());
    assert_eq!(error.to_string(), expected);
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    let link = dir.path().join("link.sock");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(ControlSocket::bind(&link).is_err());
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[tokio::test]
async fn another_user_is_turned_away_without_a_byte() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return;
    }
    let server = Fixture::start(Limits::default());
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    open(server.dir.path(), 0o755).unwrap();
    open(server.serving.path(), 0o666).unwrap();
    let script = "use Socket; $SIG{PIPE} = 'IGNORE'; socket(S, PF_UNIX, SOCK_STREAM, 0) or die; \
                  connect(S, sockaddr_un($ARGV[0])) or die \"connect: $!\"; \
                  syswrite(S, \"stop\\n\"); $n = sysread(S, $b, 99); \
                  print defined $n ? \"got $n\" : \"reset\";";
    let mut run = Command::new("setpriv");
    run.args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .args(["perl", "-e", script])
        .arg(server.serving.path());
    let output = tokio::task::spawn_blocking(move || run.output())
        .await
        .unwrap();
    let output = match output {
        Ok(output) => output,
        Err(e) => {
            println!("skipped: needs setpriv and perl: {e}");
            return;
        }
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said == "got 0" || said == "reset", "{output:?}");
    assert_eq!(server.serving.rejected(), 1);
}
