//! What is said on the control socket: JSON lines v1 and the plain words.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The protocol version spoken here.
pub const VERSION: u64 = 1;

/// Kinds of failure a request can meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "&'static str", from = "String")]
#[non_exhaustive]
pub enum Code {
    /// The request makes no sense.
    BadRequest,
    /// No such operation.
    UnknownOp,
    /// A protocol version that is not spoken here.
    UnsupportedVersion,
    /// The request is longer than allowed.
    TooLarge,
    /// Too much is going on; try again later.
    Busy,
    /// It took too long.
    Timeout,
    /// What the request names does not exist.
    NotFound,
    /// The present state does not allow it.
    Conflict,
    /// The server does not allow it.
    Denied,
    /// The provider cannot do it.
    Unsupported,
    /// The server is stopping.
    ShuttingDown,
    /// A fault of the server. Codes of newer servers arrive as this one, too.
    Internal,
}

impl Code {
    const ALL: [Self; 12] = [
        Self::BadRequest,
        Self::UnknownOp,
        Self::UnsupportedVersion,
        Self::TooLarge,
        Self::Busy,
        Self::Timeout,
        Self::NotFound,
        Self::Conflict,
        Self::Denied,
        Self::Unsupported,
        Self::ShuttingDown,
        Self::Internal,
    ];

    /// The code as it stands on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::UnknownOp => "unknown_op",
            Self::UnsupportedVersion => "unsupported_version",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Timeout => "timeout",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::Denied => "denied",
            Self::Unsupported => "unsupported",
            Self::ShuttingDown => "shutting_down",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.as_str()
    }
}

impl From<String> for Code {
    fn from(text: String) -> Self {
        let known = Self::ALL.into_iter().find(|code| code.as_str() == text);
        known.unwrap_or(Self::Internal)
    }
}

/// A request's failure, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct WireError {
    /// Its kind, for programs.
    pub code: Code,
    /// What went wrong, for people.
    #[serde(default)]
    pub message: String,
    /// The versions spoken, with [`Code::UnsupportedVersion`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub supported: Vec<u64>,
}

impl WireError {
    /// A failure of the given kind.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            supported: Vec::new(),
        }
    }

    /// The operation `op` does not exist.
    #[must_use]
    pub fn unknown_op(op: &str) -> Self {
        Self::new(Code::UnknownOp, format!("unknown op {op:?}"))
    }
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Whatever the client put there; comes back with the answer.
    pub id: Value,
    /// The operation.
    pub op: String,
    /// Its parameters, always an object.
    pub params: Value,
}

/// A line that is no request.
#[derive(Debug, Clone, PartialEq)]
pub struct Rejected {
    /// The id it carried, else null.
    pub id: Value,
    /// What is wrong with it.
    pub error: WireError,
    /// The line is not even JSON, so what follows cannot be trusted to be.
    pub close: bool,
}

impl Request {
    /// Reads one line.
    ///
    /// # Errors
    /// [`Rejected`] is what to answer.
    pub fn parse(line: &[u8]) -> Result<Self, Box<Rejected>> {
        let bad = |id: &Value, message: String, close| {
            let id = id.clone();
            let error = WireError::new(Code::BadRequest, message);
            Box::new(Rejected { id, error, close })
        };
        let null = Value::Null;
        if std::str::from_utf8(line).is_err() {
            return Err(bad(&null, "not UTF-8".to_owned(), true));
        }
        let mut fields: Map<String, Value> = serde_json::from_slice(line)
            .map_err(|e| bad(&null, format!("not a JSON object: {e}"), true))?;
        let id = fields.remove("id").unwrap_or_default();
        match fields.get("v").map_or(Some(VERSION), Value::as_u64) {
            Some(VERSION) => {}
            Some(other) => {
                let message = format!("protocol version {other} is not supported");
                let mut error = WireError::new(Code::UnsupportedVersion, message);
                error.supported = vec![VERSION];
                let close = false;
                return Err(Box::new(Rejected { id, error, close }));
            }
            None => return Err(bad(&id, "`v` must be a number".to_owned(), false)),
        }
        let Some(Value::String(op)) = fields.remove("op") else {
            return Err(bad(&id, "`op` must be a string".to_owned(), false));
        };
        let params = match fields.remove("params") {
            None | Some(Value::Null) => Value::Object(Map::new()),
            Some(params @ Value::Object(_)) => params,
            Some(_) => return Err(bad(&id, "`params` must be an object".to_owned(), false)),
        };
        Ok(Self { id, op, params })
    }

    /// The line that asks for this.
    #[must_use]
    pub fn line(&self) -> String {
        let request = json!({"v": VERSION, "id": self.id, "op": self.op, "params": self.params});
        format!("{request}\n")
    }
}

/// The line that answers a request.
#[must_use]
pub fn answer(id: &Value, result: &Result<Value, WireError>) -> String {
    let answer = match result {
        Ok(result) => json!({"v": VERSION, "id": id, "ok": true, "result": result}),
        Err(error) => json!({"v": VERSION, "id": id, "ok": false, "error": error}),
    };
    format!("{answer}\n")
}

/// What stands before a result in the line that answers a request, and behind it.
#[must_use]
pub fn around_result(id: &Value) -> (String, &'static str) {
    let before = format!("{{\"v\":{VERSION},\"id\":{id},\"ok\":true,\"result\":");
    (before, "}\n")
}

/// One line of a stream.
#[must_use]
pub fn item(id: &Value, item: &Value) -> String {
    let line = json!({"v": VERSION, "id": id, "ok": true, "item": item});
    format!("{line}\n")
}

/// The last line of a stream.
#[must_use]
pub fn done(id: &Value) -> String {
    let line = json!({"v": VERSION, "id": id, "ok": true, "done": true});
    format!("{line}\n")
}

/// The request a plain word stands for.
#[must_use]
pub fn word_request(word: &str) -> Option<Request> {
    let params = match word {
        "ping" | "status" | "poke" => json!({}),
        "stop" => json!({"mode": "graceful"}),
        "reload" => json!({"wait": true, "timeout_ms": 300_000}),
        _ => return None,
    };
    Some(Request {
        id: Value::Null,
        op: word.to_owned(),
        params,
    })
}

/// The line that answers a plain word.
#[must_use]
pub fn word_answer(word: &str, result: &Result<Value, WireError>) -> String {
    let line = match (word, result) {
        ("ping", Ok(result)) => result["pid"].to_string(),
        ("status", Ok(result)) => result.to_string(),
        (_, Ok(_)) => "ok".to_owned(),
        (_, Err(error)) if matches!(error.code, Code::Busy | Code::Timeout) => {
            error.code.to_string()
        }
        (_, Err(error)) => format!("error: {}", error.message.replace('\n', " ")),
    };
    format!("{line}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Request, Box<Rejected>> {
        Request::parse(line.as_bytes())
    }

    #[test]
    fn requests_have_defaults_and_unknown_fields_are_ignored() {
        let request = parse(r#"{"op":"ping","extra":[1]}"#).unwrap();
        assert_eq!(request.id, Value::Null);
        assert_eq!(request.params, json!({}));
        let round = parse(request.line().trim()).unwrap();
        assert_eq!(round, request);
    }

    #[test]
    fn an_answer_is_the_same_from_a_value_and_from_its_text() {
        let (id, result) = (json!("x"), json!({"a": [1, "two"]}));
        let (before, behind) = around_result(&id);
        let line = format!("{before}{result}{behind}");
        assert_eq!(line, answer(&id, &Ok(result)));
    }

    #[test]
    fn other_versions_are_told_what_is_spoken() {
        let rejected = parse(r#"{"v":2,"id":"x","op":"ping"}"#).unwrap_err();
        let line = answer(&rejected.id, &Err(rejected.error.clone()));
        assert_eq!(
            line,
            "{\"v\":1,\"id\":\"x\",\"ok\":false,\"error\":{\"code\":\"unsupported_version\",\
             \"message\":\"protocol version 2 is not supported\",\"supported\":[1]}}\n"
        );
        assert!(!rejected.close);
    }

    #[test]
    fn nonsense_is_rejected_and_only_broken_json_closes() {
        let check = |line: &[u8], close| {
            let rejected = Request::parse(line).unwrap_err();
            assert_eq!(rejected.error.code, Code::BadRequest);
            assert_eq!(rejected.close, close, "{}", String::from_utf8_lossy(line));
        };
        check(b"{", true);
        check(b"[]", true);
        check(b"{\"op\":\"\xff\"}", true);
        check(b"{}", false);
        check(br#"{"op":5}"#, false);
        check(br#"{"v":"1","op":"ping"}"#, false);
        check(br#"{"op":"ping","params":[]}"#, false);
    }

    #[test]
    fn codes_survive_the_wire_and_unknown_ones_are_internal() {
        for code in Code::ALL {
            let text = serde_json::to_string(&code).unwrap();
            assert_eq!(text, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<Code>(&text).unwrap(), code);
        }
        assert_eq!(
            serde_json::from_str::<Code>("\"novel\"").unwrap(),
            Code::Internal
        );
    }

    #[test]
    fn words_answer_in_plain_text() {
        let fails = |code| Err(WireError::new(code, "why"));
        assert_eq!(word_answer("ping", &Ok(json!({"pid": 7}))), "7\n");
        assert_eq!(word_answer("status", &Ok(json!({"a": 1}))), "{\"a\":1}\n");
        assert_eq!(word_answer("stop", &Ok(json!({"stopping": true}))), "ok\n");
        assert_eq!(word_answer("reload", &fails(Code::Busy)), "busy\n");
        assert_eq!(word_answer("reload", &fails(Code::Timeout)), "timeout\n");
        assert_eq!(word_answer("poke", &fails(Code::Internal)), "error: why\n");
        assert_eq!(word_request("bogus"), None);
    }
}
