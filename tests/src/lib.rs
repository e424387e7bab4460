//! Scenarios that drive built artifacts in the lab.
