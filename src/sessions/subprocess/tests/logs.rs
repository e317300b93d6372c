//! Logs that fill up.

use super::*;

impl City {
    /// The same city with small logs.
    fn with_bounds(bytes: u64, keep: u32) -> Self {
        let mut city = Self::new();
        let name = CityName::new("test").unwrap();
        let mut config = SubprocessConfig::new(city.root.clone(), name, "/opt/gc".into());
        (config.log_bytes, config.log_keep) = (bytes, keep);
        city.provider = Subprocess::new(config).unwrap();
        city
    }

    fn log(&self, nth: Option<u32>) -> PathBuf {
        let suffix = nth.map(|nth| format!(".{nth}")).unwrap_or_default();
        self.root.join(format!(".gc/runtime/logs/a.log{suffix}"))
    }

    fn size(&self, nth: Option<u32>) -> u64 {
        self.log(nth).metadata().map_or(0, |meta| meta.len())
    }
}

const MIB: u64 = 1 << 20;

// Row 42.
#[tokio::test]
async fn a_log_stays_within_its_bounds_and_loses_no_last_words() {
    let city = City::with_bounds(MIB, 2);
    let mut events = city.provider.subscribe();
    let line = "n=0; while [ $n -lt 4 ]; do head -c 7864320 /dev/zero | tr '\\0' y | fold -w 99; \
                n=$((n+1)); sleep 1.1; done; echo last words; exit 1";
    city.shell("a", line).await;
    next_exit(&mut events).await;
    until("the log is begun anew", async || city.size(None) <= MIB).await;
    assert!(city.log(Some(1)).exists());
    assert!(!city.log(Some(3)).exists(), "too many are kept");
    let seen = city.peek("a", 3).await;
    assert!(seen.ends_with("last words"), "{seen}");
    assert_eq!(seen.lines().count(), 3, "the rest comes from the old one");
    let note = fs::read_to_string(city.note("a")).unwrap();
    assert!(
        note.contains("\"log_offset\":0") && note.contains("\"rotated\":"),
        "{note}"
    );
}

#[tokio::test]
async fn output_of_the_run_before_stays_hidden_when_the_log_is_begun_anew() {
    let mut city = City::with_bounds(1000, 3);
    let mut events = city.provider.subscribe();
    city.shell("a", "echo old one; exit 1").await;
    next_exit(&mut events).await;
    let line = "echo new one; sleep 1.2; yes filler | head -n 500; sleep 1000";
    city.shell("a", line).await;
    until("the log is begun anew", async || {
        city.facts("a").await; // as each tick does
        city.size(Some(1)) > 0
    })
    .await;
    let seen = city.peek("a", 0).await;
    assert!(seen.starts_with("new one\nfiller"), "{seen}");
    // The next supervisor knows it, too.
    city.provider = provider(city.root.clone());
    assert_eq!(city.peek("a", 0).await, seen);
    city.provider.clear_scrollback(session("a")).await.unwrap();
    assert_eq!(city.peek("a", 0).await, "");
}

#[tokio::test]
async fn a_listing_finds_a_log_that_filled_up_unseen() {
    let city = City::with_bounds(1000, 1);
    city.shell(
        "a",
        "while [ ! -e go ]; do sleep 0.05; done; yes | head -n 9000; sleep 1000",
    )
    .await;
    // Looked at after a second, and found silent.
    tokio::time::sleep(Duration::from_millis(1300)).await;
    fs::write(city.root.join("go"), "").unwrap();
    until("it is printed", async || city.size(None) >= 18000).await;
    city.provider.set_log_bounds(2000, 1);
    city.facts("a").await;
    until("the log is begun anew", async || city.size(None) == 0).await;
    assert_eq!(city.size(Some(1)), 18000);
}
