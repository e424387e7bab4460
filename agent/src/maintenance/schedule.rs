//! One schedule for all recurring tasks. A task is due at its pace. A check runs in the main loop, a job on a separate thread,
//! at most one of each task at a time. A job ends with the process; an interrupted one is begun again.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use contract::codes;
use contract::finding::{Finding, Findings};

use super::job::{Job, SharedFindings, failed};
use crate::node::context::NodeContext;

pub(super) struct Task {
    /// The subject of the task, as in `looking after the container runtime`.
    pub what: &'static str,
    /// The pause before the first run, and after each.
    pub every: Duration,
    pub work: Work,
}

/// How a task runs. Both kinds look first and act only where something is due.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Quick, in the main loop. Returns findings for the operator.
    Check(fn(&NodeContext) -> anyhow::Result<Findings>),
    /// Takes longer than the main loop may wait. This part is quick and returns the job, if there is anything to do.
    Background(fn(&NodeContext) -> anyhow::Result<Option<Job>>),
    /// As `Background`, but the job may run for long. It waits for other nodes, pods or a server, each with its own limit, or
    /// it never ends.
    Lasting(fn(&NodeContext) -> anyhow::Result<Option<Job>>),
}

/// A job of [`Work::Background`] is stuck after so many paces or this time, times the timeout factor, whichever is longer.
const PACES: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(15 * 60);

pub(super) struct Scheduled {
    pub task: &'static Task,
    pub due: Instant,
    pub report: SharedFindings,
    /// The pause before the next look, until a job has begun.
    pause: Duration,
    /// How long a job may run at least before it counts as stuck.
    patience: Duration,
    running: Option<Running>,
    stuck: Option<Finding>,
}

struct Running {
    thread: JoinHandle<anyhow::Result<Findings>>,
    since: Instant,
}

impl Scheduled {
    /// Due for the first time after the task's pause.
    pub fn new(task: &'static Task, now: Instant) -> Self {
        Self::eager(task, task.every, now)
    }

    /// Due again and again after another pause until there is something to do. From then on the task's pace applies.
    pub fn eager(task: &'static Task, pause: Duration, now: Instant) -> Self {
        let report = SharedFindings::default();
        Self { task, due: now + pause, report, pause, patience: PATIENCE, running: None, stuck: None }
    }

    /// Runs or begins the task if it is due, and collects a finished job. Returns whether findings have changed.
    pub fn run(&mut self, node: &NodeContext, now: Instant) -> bool {
        let was_stuck = self.stuck.is_some();
        self.patience = node.config.timeout(PATIENCE);
        match self.task.work {
            Work::Check(check) => self.check(now, || check(node)),
            Work::Background(prepare) | Work::Lasting(prepare) => self.background(now, || prepare(node)),
        }
        self.report.take_news() || was_stuck != self.stuck.is_some()
    }

    /// The last findings, and whether the task is stuck.
    pub fn findings(&self) -> Findings {
        let mut all = self.report.findings();
        if let Some(stuck) = &self.stuck {
            all.push(stuck.clone());
        }
        all
    }

    fn check(&mut self, now: Instant, check: impl FnOnce() -> anyhow::Result<Findings>) {
        if self.due <= now {
            self.report(check());
            self.due = now + self.task.every;
        }
    }

    fn background(&mut self, now: Instant, prepare: impl FnOnce() -> anyhow::Result<Option<Job>>) {
        if let Some(running) = self.running.take_if(|running| running.thread.is_finished()) {
            let done = running.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            self.report(done);
            self.due = now + self.task.every;
            self.stuck = None;
        }
        if let Some(running) = &self.running {
            let limit = self.patience.max(self.task.every * PACES);
            if matches!(self.task.work, Work::Background(_)) && now.duration_since(running.since) > limit {
                self.stuck.get_or_insert_with(|| stuck(self.task.what, limit));
            }
            return;
        }
        if self.due > now {
            return;
        }
        self.due = now + self.pause;
        let begun = prepare().and_then(|job| {
            let Some(job) = job else { return Ok(None) };
            let report = self.report.clone();
            Ok(Some(thread::Builder::new().name("job".to_owned()).spawn(move || job(&report))?))
        });
        match begun {
            Ok(None) => self.report(Ok(Findings::default())),
            Ok(thread) => {
                self.pause = self.task.every;
                self.running = thread.map(|thread| Running { thread, since: now });
            }
            Err(error) => self.report(Err(error)),
        }
    }

    fn report(&self, result: anyhow::Result<Findings>) {
        self.report.set(result.unwrap_or_else(|error| failed(self.task.what, &error)));
    }
}

fn stuck(what: &str, limit: Duration) -> Finding {
    let seen = format!("its maintenance job has run for more than {} minutes and does not end", limit.as_secs() / 60);
    let action = "Restart the agent: `sudo systemctl restart kaas-agent`. If this returns, make a support bundle";
    codes::MAINTENANCE_STUCK.finding(what, seen, action)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const TASK: Task = Task { what: "the door", every: Duration::from_secs(60), work: Work::Background(|_| Ok(None)) };

    fn due() -> Scheduled {
        Scheduled { due: Instant::now(), ..Scheduled::new(&TASK, Instant::now()) }
    }

    #[test]
    fn running_job_is_not_begun_again() {
        let mut scheduled = due();
        let (end, ended) = mpsc::channel::<()>();
        let now = Instant::now();
        scheduled.background(now, || {
            Ok(Some(Box::new(move |report: &SharedFindings| {
                report.set(failed("this", &anyhow::anyhow!("under way")));
                ended.recv().unwrap();
                anyhow::bail!("the end")
            })))
        });
        scheduled.background(now + Duration::from_secs(3600), || panic!("begun twice"));
        end.send(()).unwrap();
        while scheduled.running.as_ref().is_some_and(|running| !running.thread.is_finished()) {
            thread::yield_now();
        }
        scheduled.background(now, || panic!("begun too early"));
        assert!(scheduled.report.findings().to_string().contains("the end"));
        assert!(scheduled.report.take_news() && !scheduled.report.take_news());
        scheduled.background(now + TASK.every, || Ok(None));
        assert!(scheduled.report.findings().is_empty() && scheduled.report.take_news());
    }

    #[test]
    fn eager_task_keeps_its_pace_once_it_ran() {
        let (now, soon) = (Instant::now(), TASK.every / 10);
        let mut scheduled = Scheduled::eager(&TASK, soon, now);
        scheduled.background(now + soon / 2, || panic!("too early"));
        scheduled.background(now + soon, || Ok(None));
        let mut looks = 0;
        scheduled.background(now + soon * 2, || {
            looks += 1;
            Ok(Some(Box::new(|_: &SharedFindings| Ok(Findings::default()))))
        });
        assert_eq!(looks, 1, "it had nothing to do before");
        while scheduled.running.as_ref().is_some_and(|running| !running.thread.is_finished()) {
            thread::yield_now();
        }
        let done = now + soon * 3;
        scheduled.background(done, || panic!("it has just been done"));
        scheduled.background(done + soon, || panic!("it has a pace of its own"));
        for minute in 1..3 {
            scheduled.background(done + TASK.every * minute, || {
                looks += 1;
                Ok(None)
            });
            scheduled.background(done + TASK.every * minute + soon, || panic!("it has a pace of its own"));
        }
        assert_eq!(looks, 3);
    }

    #[test]
    fn failed_task_becomes_a_warning() {
        let mut scheduled = due();
        scheduled.background(Instant::now(), || anyhow::bail!("no credentials"));
        let findings = scheduled.report.findings();
        assert!(findings.to_string().contains("the door: looking after it failed: no credentials"), "{findings}");
        assert!(findings.iter().all(|finding| finding.code == "maintenance.failed"), "{findings}");
        assert!(!findings.has_errors());
    }

    #[test]
    fn job_without_end_is_reported_until_it_ends() {
        const LASTING: Task = Task { work: Work::Lasting(|_| Ok(None)), ..TASK };
        const SLOW: Task = Task { every: Duration::from_secs(600), ..TASK };
        for (task, limit) in [(&TASK, Some(PATIENCE)), (&SLOW, Some(SLOW.every * PACES)), (&LASTING, None)] {
            let (now, (end, ended)) = (Instant::now(), mpsc::channel::<()>());
            let mut scheduled = Scheduled { due: now, ..Scheduled::new(task, now) };
            scheduled.background(now, || {
                Ok(Some(Box::new(move |_| {
                    let _ = ended.recv();
                    Ok(Findings::default())
                })))
            });
            let mut after = |time: Duration| {
                scheduled.background(now + time, || Ok(None));
                scheduled.findings().iter().map(|finding| finding.code.clone()).collect::<Vec<_>>()
            };
            if let Some(limit) = limit {
                assert!(after(limit).is_empty());
                assert_eq!(after(limit + Duration::from_secs(1)), ["maintenance.stuck"]);
            }
            let days = Duration::from_secs(3 * 24 * 3600);
            assert_eq!(after(days).len(), usize::from(limit.is_some()));
            drop(end);
            while !after(days).is_empty() {
                thread::yield_now();
            }
        }
    }

    #[test]
    fn job_on_a_slow_node_has_more_time() {
        use crate::intake::config::{Config, fixture};
        const HANGS: Task = Task {
            work: Work::Background(|_| {
                Ok(Some(Box::new(|_: &SharedFindings| -> anyhow::Result<Findings> {
                    loop {
                        thread::park();
                    }
                })))
            }),
            ..TASK
        };
        let (root, mut config, now) = (tempfile::tempdir().unwrap(), fixture::one_node(), Instant::now());
        config.timeout_factor = 20;
        let node = crate::node::fixture::node(root.path(), Config::ControlPlane(config));
        let mut scheduled = Scheduled { due: now, ..Scheduled::new(&HANGS, now) };
        let mut after = |time: Duration| {
            scheduled.run(&node, now + time);
            scheduled.findings().iter().count()
        };
        assert_eq!([Duration::ZERO, PATIENCE * 19, PATIENCE * 21].map(&mut after), [0, 0, 1]);
    }

    #[test]
    fn a_check_keeps_its_pace() {
        let mut scheduled = due();
        let now = Instant::now();
        scheduled.check(now, || anyhow::bail!("no answer"));
        assert!(scheduled.report.take_news() && scheduled.report.findings().to_string().contains("no answer"));
        scheduled.check(now + TASK.every / 2, || panic!("too early"));
        scheduled.check(now + TASK.every, || Ok(Findings::default()));
        assert!(scheduled.report.findings().is_empty() && scheduled.report.take_news());
    }
}
