//! Decides which publisher sends an Event. A publisher (kube's `Recorder`) identifies an Event by object and reason, and counts a
//! repeated one with its first note. A changed note therefore needs a new publisher. Pure: the time is a parameter.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a publisher remembers an Event that is not repeated (kube's `Recorder`: 6 minutes), with a margin.
const KNOWN: Duration = Duration::from_secs(7 * 60);
/// The shortest time between two changes of the note for a reason of an object. Faster changes count with the former note.
const PACE: Duration = Duration::from_secs(60);

/// The UID of an object, its condition, and the condition's reason.
pub type About = [String; 3];

/// The last note of each reason, with its publisher.
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
    /// `usual` is the publisher of first notes.
    pub fn new(usual: P) -> Self {
        Self { usual, told: HashMap::new() }
    }

    /// The publisher for this note. `anew` makes one without memory.
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
    fn a_changed_note_needs_another_publisher() {
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
        // Less than a minute has passed.
        assert_eq!(
            (by(149, "Blocked", "no room"), by(150, "Blocked", "no room"), by(151, "Blocked", "no room")),
            (1, 2, 2)
        );
        // The publisher has forgotten all of them.
        assert_eq!(by(151 + KNOWN.as_secs(), "Blocked", "no route"), 0);
        assert_eq!(told.told.len(), 1, "what is over is forgotten");
    }
}
