//! The walkthrough of the fleet, step by step, with the real kubectl.
