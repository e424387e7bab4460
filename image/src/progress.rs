//! Shows the progress of a build: one line for each stage on a terminal, plain lines in a log. Independent of the
//! stages.

use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress {
    kind: Kind,
    started: Instant,
    took: Mutex<Vec<(String, Duration, bool)>>,
}

enum Kind {
    Terminal(ProgressBar),
    Log,
    Silent,
}

impl Progress {
    /// On standard error: a moving line on a terminal, plain lines otherwise.
    pub fn on_stderr() -> Self {
        let kind = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {prefix:12} {elapsed:>5}  {wide_msg}") {
                bar.set_style(style);
            }
            Kind::Terminal(bar)
        } else {
            Kind::Log
        };
        Self { kind, started: Instant::now(), took: Mutex::default() }
    }

    pub fn silent() -> Self {
        Self { kind: Kind::Silent, started: Instant::now(), took: Mutex::default() }
    }

    pub fn begin(&self, stage: &str) -> Running<'_> {
        match &self.kind {
            Kind::Terminal(bar) => {
                bar.reset_elapsed();
                bar.set_prefix(stage.to_owned());
                bar.set_message("");
                bar.enable_steady_tick(Duration::from_millis(120));
            }
            Kind::Log => eprintln!("{stage}: building"),
            Kind::Silent => {}
        }
        Running { progress: self, stage: stage.to_owned(), started: Instant::now() }
    }

    pub fn cached(&self, stage: &str) {
        self.say(&format!("{stage}: up to date"));
        self.note(stage, Duration::ZERO, true);
    }

    /// A tool's latest line of output, shown on a terminal only.
    pub fn detail(&self, line: &str) {
        if let Kind::Terminal(bar) = &self.kind {
            bar.set_message(line.to_owned());
        }
    }

    pub fn say(&self, line: &str) {
        match &self.kind {
            Kind::Terminal(bar) => bar.suspend(|| eprintln!("{line}")),
            Kind::Log => eprintln!("{line}"),
            Kind::Silent => {}
        }
    }

    /// Ends the display and reports the total time.
    pub fn finish(&self) {
        if let Kind::Terminal(bar) = &self.kind {
            bar.finish_and_clear();
        }
        self.say(&format!("all stages: {:.1} s", self.started.elapsed().as_secs_f64()));
    }

    /// The name and time of each stage in order, and whether its result was in the cache.
    pub fn times(&self) -> Vec<(String, Duration, bool)> {
        self.took.lock().map(|took| took.clone()).unwrap_or_default()
    }

    fn note(&self, stage: &str, time: Duration, cached: bool) {
        if let Ok(mut took) = self.took.lock() {
            took.push((stage.to_owned(), time, cached));
        }
    }
}

/// A running stage. Reports nothing if the stage fails: the error does.
pub struct Running<'p> {
    progress: &'p Progress,
    stage: String,
    started: Instant,
}

impl Running<'_> {
    pub fn done(self) {
        let time = self.started.elapsed();
        if let Kind::Terminal(bar) = &self.progress.kind {
            bar.disable_steady_tick();
        }
        self.progress.say(&format!("{}: built in {:.1} s", self.stage, time.as_secs_f64()));
        self.progress.note(&self.stage, time, false);
    }
}
