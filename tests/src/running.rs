//! A command that runs during a scenario, and ends with it at the latest.

use std::process::{Child, Output};
use std::time::{Duration, Instant};

/// One that was begun. Its standard output and error are collected.
pub(crate) struct Running {
    child: Option<Child>,
    started: Instant,
}

impl Running {
    pub(crate) fn of(child: Child) -> Self {
        Self { child: Some(child), started: Instant::now() }
    }

    /// Waits for its end: what it has printed, and how long it took.
    pub(crate) fn ends(mut self) -> (Output, Duration) {
        let child = self.child.take().expect("a command that goes on");
        let output = child.wait_with_output().unwrap_or_else(|error| panic!("waiting for kaas: {error}"));
        (output, self.started.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
