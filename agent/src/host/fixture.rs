//! Network namespaces and file systems for tests.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};

use crate::host::command::{Command, Host, Runner};

/// A network namespace of the kernel, which is deleted on drop.
pub struct Namespace(pub String);

impl Namespace {
    /// A new namespace. Its name begins with this process. It requires root, and the test fails without.
    pub fn new(name: &str) -> Self {
        assert!(nix::unistd::geteuid().is_root(), "this test makes network namespaces, which needs root");
        let namespace = Self(format!("kaas-test-{}-{name}", std::process::id()));
        Host.run(&Command::new("ip").args(["netns", "add", &namespace.0])).unwrap();
        namespace
    }

    /// Runs `work` in the namespace, on a separate thread.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let file = File::open(Path::new("/run/netns").join(&self.0)).unwrap();
        thread::spawn(move || {
            setns(file.as_fd(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        })
    }

    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.spawn(work).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub fn ip(&self, arguments: &str) {
        let arguments: Vec<_> = arguments.split(' ').map(str::to_owned).collect();
        self.run(move || Host.run(&Command::new("ip").args(arguments)).unwrap());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Host.run(&Command::new("ip").args(["netns", "delete", &self.0]));
    }
}

/// A file system with little space. It is mounted for the thread that made it and the threads that it starts, until
/// this is dropped.
pub struct SmallFileSystem(PathBuf);

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        umount2(&self.0, MntFlags::MNT_DETACH).unwrap();
    }
}

pub fn small_file_system(point: &Path) -> SmallFileSystem {
    unshare(CloneFlags::CLONE_NEWNS).expect("this test needs root");
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
    std::fs::create_dir_all(point).unwrap();
    mount(Some("tmpfs"), point, Some("tmpfs"), MsFlags::empty(), Some("size=64m")).unwrap();
    SmallFileSystem(point.to_owned())
}

/// Fails a test that hangs, instead of waiting forever.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(600);
    while !holds() {
        assert!(Instant::now() < until, "{what} did not come about");
        thread::sleep(Duration::from_millis(20));
    }
}
