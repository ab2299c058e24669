//! `farmem top`: what runs under Farmem, at a glance.
//!
//! - `screen` is what the screen shows, and what keys do to it;
//! - `inside` is what it shows of one application: processes, and regions of one;
//! - `draw` puts that into a terminal's cells, `draw_inside` the inside of an application;
//! - `top` is the loop: look, draw, wait for a key.
//!
//! The first two are functions of their input, so a screen is tested as text.
#![forbid(unsafe_code)]

mod draw;
mod draw_inside;
mod inside;
mod screen;
mod top;

pub use top::{Options, once, top};
