mod crash;
mod fake;
mod next;
mod stories;
