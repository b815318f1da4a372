;;; aned-tests.el --- aned.el in a real Emacs  -*- lexical-binding: t; -*-
;; Run by test_emacs.py, which gives sockets and what is said by ANED_T_*.

(require 'aned)
(require 'ert)

(defun aned-t-env (name)
  (getenv (concat "ANED_T_" name)))

(defun aned-t-until (what)
  "Wait until WHAT, a function, gives something; its value."
  (let ((end (+ (float-time) 120)) (found nil))
    (while (not (setq found (funcall what)))
      (when (> (float-time) end)
        (error "It does not happen"))
      (accept-process-output nil 0.02))
    found))

(defvar aned-t-told nil "What was said in the echo area, the last first.")

(defmacro aned-t-with (socket model &rest body)
  "Run BODY with a chat of its own, SOCKET (of ANED_T_) and MODEL."
  (declare (indent 2))
  `(let ((aned-socket (aned-t-env ,socket)) (aned-model ,model) (aned-system "") (aned--no-suffix nil)
         (aned-chat-max-tokens nil) (aned-t-told nil))
     (cl-letf (((symbol-function 'message)
                (lambda (format &rest args)
                  (when format
                    (push (apply #'format format args) aned-t-told)))))
       (unwind-protect (progn ,@body)
         (aned-dismiss)
         (when (get-buffer "*aned*")
           (kill-buffer "*aned*"))))))

(defun aned-t-told-p (words)
  (cl-some (lambda (x) (string-search words x)) aned-t-told))

(defun aned-t-chat (text)
  "Ask TEXT in the chat, and wait for the end of the answer."
  (aned-chat)
  (goto-char (point-max))
  (insert text)
  (aned-send)
  (aned-t-until (lambda () (not aned--answer))))

(ert-deftest aned-t-a-chat ()
  (aned-t-with "DAEMON" "s"
    (aned-t-chat "Who are you?")
    (should (equal (buffer-string)
                   (concat "## You\n\nWho are you?\n\n## Model\n\n" (aned-t-env "TEXT") "\n\n## You\n\n")))
    (aned-t-chat "And again?")
    (should (string-suffix-p (concat "And again?\n\n## Model\n\n" (aned-t-env "SECOND") "\n\n## You\n\n") (buffer-string)))
    (should (= (point) (point-max)))))

(ert-deftest aned-t-keys-send ()
  (aned-t-with "DAEMON" "s"
    (aned-chat)
    (execute-kbd-macro (kbd "H e l l o C-c C-c"))
    (aned-t-until (lambda () (not aned--answer)))
    (should (string-search (aned-t-env "TEXT") (buffer-string)))))

(ert-deftest aned-t-instructions ()
  (aned-t-with "DAEMON" "s"
    (let ((aned-system "Be terse."))
      (aned-t-chat "Hello")
      (should (string-search "\n\nYou are terse.\n" (buffer-string))))))

(ert-deftest aned-t-a-region ()
  (aned-t-with "DAEMON" "s"
    (with-temp-buffer
      (insert "one\ntwo")
      (aned-chat 1 4))
    (with-current-buffer "*aned*"
      (should (equal (buffer-string) "## You\n\n```\none\n```\n\n")))))

(ert-deftest aned-t-stop ()
  "What came stays, and the model computes no longer."
  (aned-t-with "DAEMON" "s"
    (aned-chat)
    (insert "endless")
    (aned-send)
    (aned-t-until (lambda () (string-search "on and on. On and on" (buffer-string))))
    (should-error (aned-send) :type 'user-error)
    (aned-stop)
    (should (string-search "on and on. On and on" (buffer-string)))
    (should (string-suffix-p "\n\n## You\n\n" (buffer-string)))
    (let ((now (buffer-string)) (idle nil))
      (aned-t-until (lambda ()
                      (aned--request "GET" "/aned/v1/status" nil nil
                                     (lambda (_ body)
                                       (let ((x (aned--read body)))
                                         (setq idle (= 0 (gethash "running" x))))))
                      (accept-process-output nil 0.05)
                      idle))
      (should (equal now (buffer-string))))))

(defun aned-t-complete (text)
  "Complete at the end of TEXT in this buffer; the grey text."
  (insert text)
  (aned-complete)
  (aned-t-until (lambda () (and (not aned--asked) (or (aned-ghost-text) "")))))

(ert-deftest aned-t-completion ()
  (aned-t-with "DAEMON" "s"
    (with-temp-buffer
      (should (equal (aned-t-complete "return a") (aned-t-env "CODE")))
      (should (equal (buffer-string) "return a"))
      (should (equal (substring-no-properties (overlay-get aned--ghost 'after-string)) (aned-t-env "CODE")))
      (aned-accept)
      (should (equal (buffer-string) (concat "return a" (aned-t-env "CODE"))))
      (should (= (point) (point-max)))
      (should-not (aned-ghost-text)))))

(ert-deftest aned-t-completion-keys ()
  "TAB takes over; another key goes on without."
  (aned-t-with "DAEMON" "s"
    (with-temp-buffer
      (switch-to-buffer (current-buffer))
      (aned-t-complete "return a")
      (execute-kbd-macro (kbd "TAB"))
      (should (equal (buffer-string) (concat "return a" (aned-t-env "CODE")))))
    (with-temp-buffer
      (switch-to-buffer (current-buffer))
      (aned-t-complete "return a")
      (execute-kbd-macro (kbd "x"))
      (should (equal (buffer-string) "return ax"))
      (should-not (aned-ghost-text)))))

(ert-deftest aned-t-within-a-line ()
  "The daemon may refuse a suffix: then there is a completion without."
  (aned-t-with "DAEMON" "s"
    (with-temp-buffer
      (insert " # the end")
      (goto-char 1)
      (should (equal (aned-t-complete "return a") (aned-t-env "CODE")))
      (aned-accept)
      (should (equal (buffer-string) (concat "return a" (aned-t-env "CODE") " # the end"))))))

(ert-deftest aned-t-bytes ()
  "What comes byte by byte is one text; both sides of point are sent."
  (aned-t-with "BYTES" ""
    (with-temp-buffer
      (insert "behind")
      (goto-char 1)
      (should (equal (aned-t-complete "before ä ") "ä漢\nx")))))

(ert-deftest aned-t-refused-once ()
  (aned-t-with "NOSUFFIX" ""
    (with-temp-buffer
      (insert "behind")
      (goto-char 1)
      (should (equal (aned-t-complete "ab") "x"))
      (should (equal (aned-t-complete "c") "x")))))

(ert-deftest aned-t-models ()
  (aned-t-with "DAEMON" ""
    (let ((found nil))
      (aned--models (lambda (names) (setq found names)))
      (should (equal (sort (aned-t-until (lambda () found)) #'string<) '("bare" "s"))))))

(ert-deftest aned-t-errors ()
  "Each says what to do; the question stays, to be sent again."
  (dolist (row (read (aned-t-env "ERRORS")))
    (aned-t-with (car row) ""
      (aned-t-chat "Hello")
      (ert-info ((format "%S: %S" row aned-t-told))
        (should (aned-t-told-p (cdr row)))
        (should (equal (buffer-string) "## You\n\nHello"))))))

(ert-deftest aned-t-an-error-amid-an-answer ()
  (aned-t-with "AMID" ""
    (aned-t-chat "Hello")
    (should (aned-t-told-p "try again"))
    (should (string-suffix-p "## Model\n\nWell\n\n## You\n\n" (buffer-string)))))

(ert-deftest aned-t-no-daemon ()
  (aned-t-with "NOWHERE" ""
    (aned-t-chat "Hello")
    (should (aned-t-told-p "aned serve"))
    (should (equal (buffer-string) "## You\n\nHello"))
    (with-temp-buffer
      (aned-t-complete "a")
      (should-not (aned-ghost-text)))))

(ert-deftest aned-t-errors-of-the-daemon ()
  (aned-t-with "DAEMON" "nobody"
    (aned-t-chat "Hello")
    (should (aned-t-told-p "anectl models"))
    (setq aned-model "bare")
    (aned-t-chat "")
    (should (aned-t-told-p "M-x aned-complete"))))

(ert-deftest aned-t-what-cannot-be-asked ()
  (aned-t-with "DAEMON" "s"
    (with-temp-buffer
      (should-error (aned-complete) :type 'user-error)
      (should-error (aned-accept) :type 'user-error)
      (should-error (aned-send) :type 'user-error))
    (aned-chat)
    (should-error (aned-send) :type 'user-error)))

(ert-deftest aned-t-where-aned-is ()
  (let ((aned-socket nil))
    (dolist (row '((("ANED_SOCKET=/s") . "/s")
                   (("ANED_SOCKET=" "XDG_RUNTIME_DIR=/r") . "/r/aned/aned.sock")
                   (("ANED_SOCKET=" "XDG_RUNTIME_DIR=" "ANED_HOME=/h") . "/h/run/aned.sock")))
      (let ((process-environment (append (car row) process-environment)))
        (should (equal (aned-socket-path) (cdr row)))))))
