//! From power-on to a node that does its part: the plan, its steps, and what may begin it anew.
//!
//! Calls everything but the faces.

pub mod corrections;
pub mod early;
pub mod mark_good;
pub mod plan;
pub mod reconfigure;
pub mod reset;
pub mod run;
pub mod steps;
