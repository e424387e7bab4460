//! One schedule for all that recurs. A task is due at its pace; a check is done in passing, a job on a thread of its
//! own, at most one of each task at a time. A job ends with the process; what was cut off is begun again.

use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use contract::codes;
use contract::finding::{Finding, Findings};

use super::job::{Job, SharedFindings, failed};
use crate::node::context::NodeContext;

/// Something that recurs.
pub(super) struct Task {
    /// What it looks after, as in `looking after the container runtime`.
    pub what: &'static str,
    /// The pause before the first time, and after each.
    pub every: Duration,
    pub work: Work,
}

/// How a task is done. Both look first and act only where something is due.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Quick, in passing. Gives what a person should know.
    Check(fn(&NodeContext) -> anyhow::Result<Findings>),
    /// Takes longer than the watch over the node may wait. This part is quick and gives the job, if there is anything
    /// to do.
    Background(fn(&NodeContext) -> anyhow::Result<Option<Job>>),
    /// The same for a job that waits for other nodes, for pods or for a server, each with its own limit, or that goes
    /// on for good: it may run for long.
    Lasting(fn(&NodeContext) -> anyhow::Result<Option<Job>>),
}

/// A job of [`Work::Background`] that runs for so many paces, and for this time, times the timeout factor, is stuck.
const PACES: u32 = 10;
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// A task and how it stands.
pub(super) struct Scheduled {
    pub task: &'static Task,
    pub due: Instant,
    pub report: SharedFindings,
    /// The pause before it is looked at again, until a job of it has begun.
    pause: Duration,
    /// How long a job may run at least.
    patience: Duration,
    running: Option<Running>,
    stuck: Option<Finding>,
}

/// A job that has begun.
struct Running {
    thread: JoinHandle<anyhow::Result<Findings>>,
    since: Instant,
}

impl Scheduled {
    /// Due for the first time after its pause.
    pub fn new(task: &'static Task, now: Instant) -> Self {
        Self::eager(task, task.every, now)
    }

    /// Looked at after another pause, again and again, until there is something to do; at its own pace from then on.
    pub fn eager(task: &'static Task, pause: Duration, now: Instant) -> Self {
        let report = SharedFindings::default();
        Self { task, due: now + pause, report, pause, patience: PATIENCE, running: None, stuck: None }
    }

    /// Does or begins what is due and takes back what is done. Says whether a person may have something to learn.
    pub fn run(&mut self, node: &NodeContext, now: Instant) -> bool {
        let was_stuck = self.stuck.is_some();
        self.patience = node.config.timeout(PATIENCE);
        match self.task.work {
            Work::Check(check) => self.check(now, || check(node)),
            Work::Background(prepare) | Work::Lasting(prepare) => self.background(now, || prepare(node)),
        }
        self.report.take_news() || was_stuck != self.stuck.is_some()
    }

    /// What it has last found, and whether it is stuck.
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

/// Says that looking after something does not end.
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
    fn a_job_is_not_begun_again_while_it_is_under_way() {
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
    fn an_eager_task_is_looked_at_until_there_is_something_to_do_and_keeps_its_pace_then() {
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
    fn what_fails_becomes_a_warning_that_names_it() {
        let mut scheduled = due();
        scheduled.background(Instant::now(), || anyhow::bail!("no credentials"));
        let findings = scheduled.report.findings();
        assert!(findings.to_string().contains("the door: looking after it failed: no credentials"), "{findings}");
        assert!(findings.iter().all(|finding| finding.code == "maintenance.failed"), "{findings}");
        assert!(!findings.has_errors());
    }

    #[test]
    fn a_job_that_does_not_end_is_stuck_until_it_ends() {
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
    fn a_job_of_a_slow_node_has_more_time() {
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
