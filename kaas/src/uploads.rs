//! The progress of uploads, on standard error: one line that changes on a terminal, otherwise a line every 10 % or 30 s.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use vsphere::Sent;

use crate::output::warn;

/// The longest time without a line.
const INTERVAL: Duration = Duration::from_secs(30);

/// Receives the progress of one upload after the other.
pub fn upload_progress() -> impl Fn(Sent) + Send + Sync + 'static {
    let current = Mutex::new(None);
    move |sent| {
        let mut current = current.lock().unwrap_or_else(PoisonError::into_inner);
        let line = words(sent);
        match current.get_or_insert_with(Display::begin) {
            Display::Terminal(bar) => {
                bar.set_message(line.clone());
                bar.tick();
            }
            Display::Log(pace) => {
                if pace.is_due(sent.percent(), Instant::now()) {
                    warn(&line);
                }
            }
        }
        if sent.bytes < sent.total {
            return;
        }
        if let Some(Display::Terminal(bar)) = current.take() {
            bar.finish_and_clear();
            warn(&line);
        }
    }
}

/// Where the progress of an upload is shown.
enum Display {
    Terminal(ProgressBar),
    Log(Pace),
}

impl Display {
    fn begin() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self::Log(Pace::default());
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Self::Terminal(bar)
    }
}

/// Decides when a line is due.
#[derive(Default)]
struct Pace {
    /// The percentage and the time of the last line.
    last: Option<(u32, Instant)>,
}

impl Pace {
    fn is_due(&mut self, percent: u32, now: Instant) -> bool {
        let is_late = |at| now.saturating_duration_since(at) >= INTERVAL;
        let is_due = self.last.is_none_or(|(last, at)| percent / 10 > last / 10 || is_late(at));
        if is_due {
            self.last = Some((percent, now));
        }
        is_due
    }
}

fn words(sent: Sent) -> String {
    format!("uploading the image: {} %, {} of {} MiB", sent.percent(), sent.bytes >> 20, sent.total >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_is_due_every_tenth_or_half_minute() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let mut due = |percent, seconds| pace.is_due(percent, begin + Duration::from_secs(seconds));
        assert!(due(0, 0) && !due(9, 2) && due(10, 4), "each tenth");
        assert!(!due(12, 33) && due(12, 34) && !due(13, 40), "each half minute");
        assert!(due(100, 41) && !due(100, 42));
    }

    #[test]
    fn line_has_percent_and_size() {
        let sent = Sent { bytes: 120 << 20, total: 266 << 20 };
        assert_eq!(words(sent), "uploading the image: 45 %, 120 of 266 MiB");
    }
}
