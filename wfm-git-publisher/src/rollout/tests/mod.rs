//! Tests of the rollouts as a whole: looks at a fleet that isn't there.

mod always;
mod changes;
mod course;
mod table;
mod words;
mod world;
