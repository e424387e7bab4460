//! The appliance agent as a library.
//!
//! The property schema serves the image builder and the lab as well; the rest
//! runs on an appliance VM only.

pub mod addons;
pub mod amend;
pub mod at_once;
pub mod bundle;
pub mod bus;
pub mod care;
pub mod certificates;
pub mod cli;
pub mod command;
pub mod config;
pub mod console;
pub mod context;
pub mod corrections;
pub mod disk;
pub mod early;
pub mod endpoint;
pub mod environment;
pub mod etcd;
pub mod files;
pub mod https;
pub mod image;
pub mod kubernetes;
pub mod mark_good;
pub mod payload;
pub mod pki;
pub mod plan;
pub mod platform;
pub mod pod_network;
pub mod preflight;
pub mod records;
pub mod rendezvous;
pub mod reset;
pub mod run;
pub mod services;
pub mod status;
pub mod steps;
pub mod surroundings;
pub mod swap;
pub mod system;
pub mod virtual_address;
pub mod watch;
