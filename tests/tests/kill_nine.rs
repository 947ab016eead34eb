//! `fleet up` is killed at random moments and goes on where it was.
