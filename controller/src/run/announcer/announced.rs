//! In which words each reason of an object was told. Whoever publishes Events knows them by object and reason, and counts one that comes
//! back in the words of its first time: words that are new are published by another one, who knows of none. Pure: time is given.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long whoever publishes knows an Event that does not come back (kube's `Recorder`: 6 minutes), and somewhat longer.
const KNOWN: Duration = Duration::from_secs(7 * 60);
/// How often one reason of one object may be told in other words. Words that change faster are counted as the ones before.
const PACE: Duration = Duration::from_secs(60);

/// An object's UID, its condition and the reason of that.
pub type About = [String; 3];

/// What was told, and by whom.
pub struct Announced<P> {
    usual: P,
    told: HashMap<About, Words<P>>,
}

struct Words<P> {
    note: String,
    by: P,
    since: Instant,
    last: Instant,
}

impl<P: Clone> Announced<P> {
    /// Nothing yet, by who publishes what is new.
    pub fn new(usual: P) -> Self {
        Self { usual, told: HashMap::new() }
    }

    /// By whom this is told now; `anew` makes one who knows of nothing.
    pub fn by(&mut self, about: About, note: &str, now: Instant, anew: impl Fn() -> P) -> P {
        self.told.retain(|_, words| now.duration_since(words.last) < KNOWN);
        let words = self.told.entry(about).or_insert_with(|| Words {
            note: note.to_owned(),
            by: self.usual.clone(),
            since: now,
            last: now,
        });
        if words.note != note && now.duration_since(words.since) >= PACE {
            (words.note, words.by, words.since) = (note.to_owned(), anew(), now);
        }
        words.last = now;
        words.by.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn other_words_are_told_by_another_one_and_no_faster_than_people_read() {
        let begin = Instant::now();
        let (mut told, made) = (Announced::new(0), Cell::new(0));
        let anew = || {
            made.set(made.get() + 1);
            made.get()
        };
        let mut by = |seconds: u64, reason: &str, note: &str| {
            let about = ["uid", "Progressing", reason].map(str::to_owned);
            told.by(about, note, begin + Duration::from_secs(seconds), anew)
        };
        assert_eq!((by(0, "Blocked", "no room"), by(60, "Blocked", "no room"), by(61, "Idle", "")), (0, 0, 0));
        assert_eq!((by(90, "Blocked", "login refused"), by(95, "Blocked", "login refused")), (1, 1));
        // A minute is not over.
        assert_eq!(
            (by(149, "Blocked", "no room"), by(150, "Blocked", "no room"), by(151, "Blocked", "no room")),
            (1, 2, 2)
        );
        // Who publishes knows of none of them any more.
        assert_eq!(by(151 + KNOWN.as_secs(), "Blocked", "no route"), 0);
        assert_eq!(told.told.len(), 1, "what is over is forgotten");
    }
}
