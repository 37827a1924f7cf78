//! Tools of numerical mathematics: root finding on monotone functions.
