mod cancel;
mod crash;
mod fake;
mod next;
mod records;
mod stories;
mod upgrades;
mod wish;
