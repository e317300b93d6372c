//! One event as one line.

use gascity_actors::model::Event;
use serde_json::{Map, Value};

/// Longest line, its newline included.
pub(super) const LINE_LIMIT: usize = 60 << 10;

/// What is left of texts that make a line too long, in bytes.
const CUT_MESSAGE: usize = 4 << 10;
const CUT_NAME: usize = 256;

/// Writes `event` at the end of `out`, newline included. One that is too long loses its payload
/// and the end of its message.
pub(super) fn encode(event: &mut Event, out: &mut Vec<u8>) -> serde_json::Result<()> {
    let begin = out.len();
    serde_json::to_writer(&mut *out, event)?;
    out.push(b'\n');
    if out.len() - begin <= LINE_LIMIT {
        return Ok(());
    }
    out.truncate(begin);
    let bytes = serde_json::to_vec(&event.payload)?.len();
    if !event.payload.is_empty() {
        event.payload = Map::from_iter([
            ("truncated".to_owned(), Value::from(true)),
            ("bytes".to_owned(), Value::from(bytes)),
        ]);
    }
    cut(&mut event.message, CUT_MESSAGE);
    for name in [&mut event.kind, &mut event.actor, &mut event.subject] {
        cut(name, CUT_NAME);
    }
    serde_json::to_writer(&mut *out, event)?;
    out.push(b'\n');
    Ok(())
}

fn cut(text: &mut String, limit: usize) {
    let mut end = limit.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
}

/// The event of a line, if it is one.
pub(super) fn decode(line: &[u8]) -> Option<Event> {
    serde_json::from_slice(line).ok()
}

/// The number of the event of a line, if it is one.
pub(super) fn decode_seq(line: &[u8]) -> Option<u64> {
    // The whole event, so that both agree on what an event is.
    decode(line).map(|event| event.seq)
}

#[cfg(test)]
mod tests {
    use chrono::Utc;
    use gascity_actors::model::EventDraft;

    use super::*;

    #[test]
    fn a_line_never_exceeds_the_limit() {
        let long = "\u{1}ä".repeat(LINE_LIMIT);
        let draft = EventDraft::new(&long, &long)
            .message(long.clone())
            .with("big", long);
        let mut event = draft.record(1, Utc::now());
        let mut line = Vec::new();
        encode(&mut event, &mut line).unwrap();
        assert!(line.len() <= LINE_LIMIT, "{}", line.len());
        assert_eq!(event.payload["truncated"], true);
        assert!(event.payload["bytes"].as_u64().unwrap() > LINE_LIMIT as u64);
        let read = decode(&line).unwrap();
        assert_eq!((read.seq, read.message), (1, event.message));
    }

    #[test]
    fn an_ordinary_event_is_untouched() {
        let mut event = EventDraft::new("a.b", "x")
            .with("n", 1)
            .record(2, Utc::now());
        let before = event.clone();
        let mut out = b"before\n".to_vec();
        encode(&mut event, &mut out).unwrap();
        assert_eq!(event, before);
        let line = out.strip_prefix(b"before\n").unwrap();
        assert_eq!(decode_seq(line), Some(2));
        assert_eq!(decode_seq(b"{\"seq\":3,\"ty"), None);
    }
}
