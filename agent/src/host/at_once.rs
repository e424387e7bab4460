//! Asks several machines at once, so that the waits for those that do not answer overlap.

use std::thread::{self, ScopedJoinHandle};

/// Asks each of `all` in a separate thread, and returns the answers in the order of `all`.
pub fn ask<T: Send, A: Send>(all: impl IntoIterator<Item = T>, question: impl Fn(&T) -> A + Sync) -> Vec<(T, A)> {
    let question = &question;
    thread::scope(|scope| {
        let ways: Vec<_> = all
            .into_iter()
            .map(|one| {
                scope.spawn(move || {
                    let answer = question(&one);
                    (one, answer)
                })
            })
            .collect();
        ways.into_iter().map(join).collect()
    })
}

/// The result of a thread. If it panicked, this thread panics.
pub fn join<A>(way: ScopedJoinHandle<'_, A>) -> A {
    way.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn all_are_asked_before_the_first_answers() {
        let together = Barrier::new(3);
        let answers = ask([1, 2, 3], |number| {
            together.wait();
            number * 10
        });
        assert_eq!(answers, [(1, 10), (2, 20), (3, 30)]);
    }
}
